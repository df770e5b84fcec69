#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/detail/text.hpp"
#include "../../stage/detail/gather_on_host.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns the first line of a text of each rank, at most 255 bytes of it. Collective;
/// waits.
template <class Access>
[[gnu::cold]] [[nodiscard]] std::vector<std::string>
gather_texts(Access const& access, std::string_view own, char const* what) {
    constexpr std::size_t words = 32;
    std::vector<std::uint64_t> send(words);
    std::string_view const line = first_line(own).substr(0, words * sizeof(std::uint64_t) - 1);
    if (!line.empty()) {
        std::memcpy(send.data(), line.data(), line.size());
    }
    std::vector<std::string> texts;
    access.guard([&] {
        auto const all =
            gather_on_host(access.communicator(), access.queue(), access.memory(), send, what);
        for (std::size_t begin = 0; begin < all.size(); begin += words) {
            texts.emplace_back(reinterpret_cast<char const*>(all.data() + begin)); // ends with 0
        }
    });
    return texts;
}

} // namespace ZERO_NAMESPACE::detail
