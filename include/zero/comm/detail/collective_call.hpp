#pragma once

#include "../../core/dtype.hpp"
#include "../communicator.hpp"
#include "../traffic_count.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace zero::detail {

/// @brief What one rank asks of the others: all ranks of a group have to ask for the same.
struct CollectiveCall {
    CollectiveKind kind{};
    DType type{};
    std::size_t count = 0;    ///< elements of the whole
    std::uint64_t detail = 0; ///< hash of the cuts; of a broadcast the root, of integers the reduction
    CollectiveTag tag{};

    friend bool operator==(CollectiveCall const& a, CollectiveCall const& b) noexcept {
        return a.kind == b.kind && a.type == b.type && a.count == b.count && a.detail == b.detail && a.tag.index == b.tag.index
            && std::string_view(a.tag.what) == std::string_view(b.tag.what);
    }
};

inline std::uint64_t hash_of(std::span<std::size_t const> cuts) noexcept {
    std::uint64_t hash = 14695981039346656037U;
    for (std::size_t const cut : cuts) {
        hash = (hash ^ cut) * 1099511628211U;
    }
    return hash;
}

/// @brief "reduce-scatter of 640 bfloat16 ('gradients of bucket 3', cuts 1234)"
inline std::string describe(CollectiveCall const& call) {
    std::string text = std::string(name_of(call.kind)) + " of " + std::to_string(call.count) + ' ' + name_of(call.type) + " ('" + call.tag.what + ' '
                     + std::to_string(call.tag.index) + "', ";
    if (call.kind == CollectiveKind::broadcast) {
        text += "root " + std::to_string(call.detail);
    } else if (call.kind == CollectiveKind::integers) {
        text += static_cast<IntegerReduction>(call.detail) == IntegerReduction::sum ? "sum" : "minimum";
    } else {
        text += "cuts " + std::to_string(call.detail % 10000); // two numbers that differ are enough to see that the cuts do
    }
    return text + ')';
}

/// @brief The text for two ranks that disagree.
inline std::string describe(CollectiveCall const& first, std::size_t rank, CollectiveCall const& other) {
    return "rank 0 called " + describe(first) + ", rank " + std::to_string(rank) + " called " + describe(other);
}

} // namespace zero::detail
