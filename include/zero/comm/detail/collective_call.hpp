#pragma once

#include "../../core/dtype.hpp"
#include "../../core/error.hpp"
#include "../communicator.hpp"
#include "../traffic_count.hpp"

#include <algorithm>
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

/// @brief Checks the arguments that need no peer. @throws InvalidArgument naming the call, the rank and what a group of `world` ranks needs
inline CollectiveCall cut_call(CollectiveKind kind, DType type, std::span<std::size_t const> cuts, CollectiveTag tag, std::size_t rank, std::size_t world) {
    if (cuts.size() != world + 1 || cuts.front() != 0 || !std::is_sorted(cuts.begin(), cuts.end())) {
        throw InvalidArgument(std::string("zero: ") + name_of(kind) + " '" + tag.what + ' ' + std::to_string(tag.index) + "' on rank " + std::to_string(rank) + " got "
                              + std::to_string(cuts.size()) + " cuts; a group of " + std::to_string(world) + " ranks needs " + std::to_string(world + 1)
                              + ", which begin with 0 and do not decrease.");
    }
    return {kind, type, cuts.back(), hash_of(cuts), tag};
}

/// @copydoc cut_call
inline CollectiveCall broadcast_call(DType type, std::size_t elements, int root, CollectiveTag tag, std::size_t world) {
    if (root < 0 || static_cast<std::size_t>(root) >= world) {
        throw InvalidArgument("zero: broadcast from rank " + std::to_string(root) + ", which is not in the group of " + std::to_string(world) + '.');
    }
    return {CollectiveKind::broadcast, type, elements, static_cast<std::uint64_t>(root), tag};
}

/// @copydoc cut_call
inline void require_memory(CollectiveCall const& call, void const* memory, std::size_t elements, std::size_t rank) {
    if (memory == nullptr && elements != 0) {
        throw InvalidArgument("zero: " + describe(call) + " on rank " + std::to_string(rank) + " got a null pointer for " + std::to_string(elements) + " elements.");
    }
}

} // namespace zero::detail
