#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../stage/detail/broadcast_on_host.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns the text of rank 0. Collective; waits.
template <class Access>
[[nodiscard]] std::string broadcast_text(Access const& access, std::string const& own,
                                         char const* what) {
    auto const send = [&](std::vector<std::uint64_t> const& values) {
        return broadcast_on_host(access.communicator(), access.queue(), access.memory(), values,
                                 what);
    };
    std::string all;
    access.guard([&] {
        std::vector<std::uint64_t> characters(static_cast<std::size_t>(send({own.size()})[0]));
        for (std::size_t i = 0; i < characters.size() && i < own.size(); ++i) {
            characters[i] = static_cast<unsigned char>(own[i]);
        }
        if (!characters.empty()) {
            for (std::uint64_t const character : send(characters)) {
                all += static_cast<char>(character);
            }
        }
    });
    return all;
}

} // namespace ZERO_NAMESPACE::detail
