#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/dtype.hpp"
#include "../../core/error.hpp"
#include "../communicator.hpp"
#include "../traffic_count.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ZERO_NAMESPACE::detail {

/// @brief What one rank asks of the others: all ranks of a group have to ask for the same.
struct CollectiveCall {
    CollectiveKind kind{};
    DType type{};
    std::size_t count = 0; ///< elements of the whole
    std::uint64_t detail =
        0; ///< hash of the cuts; of a broadcast the root, of integers the reduction
    CollectiveTag tag{};

    friend bool operator==(CollectiveCall const& a, CollectiveCall const& b) noexcept {
        return a.kind == b.kind && a.type == b.type && a.count == b.count && a.detail == b.detail
               && a.tag.index == b.tag.index
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
    std::string result = text({name_of(call.kind), " of ", call.count, ' ', name_of(call.type),
                               " ('", call.tag.what, ' ', call.tag.index, "', "});
    if (call.kind == CollectiveKind::broadcast) {
        result += text({"root ", call.detail});
    } else if (call.kind == CollectiveKind::integers) {
        result +=
            static_cast<IntegerReduction>(call.detail) == IntegerReduction::sum ? "sum" : "minimum";
    } else {
        result += text(
            {"cuts ",
             call.detail % 10000}); // two numbers that differ are enough to see that the cuts do
    }
    return result + ')';
}

/// @brief The text for two ranks that disagree.
inline std::string describe(CollectiveCall const& first, std::size_t rank,
                            CollectiveCall const& other) {
    return text({"rank 0 called ", describe(first), ", rank ", rank, " called ", describe(other)});
}

/// @brief Begin with 0 and do not decrease, one more than ranks.
inline bool are_cuts(std::span<std::size_t const> cuts, std::size_t world) noexcept {
    bool are = cuts.size() == world + 1 && cuts[0] == 0;
    for (std::size_t rank = 0; are && rank < world; ++rank) {
        are = cuts[rank] <= cuts[rank + 1];
    }
    return are;
}

/// @brief Checks the arguments that need no peer. @throws InvalidArgument naming the call, the rank
/// and what a group of `world` ranks needs
inline CollectiveCall cut_call(CollectiveKind kind, DType type, std::span<std::size_t const> cuts,
                               CollectiveTag tag, std::size_t rank, std::size_t world) {
    if (!are_cuts(cuts, world)) {
        throw_error<InvalidArgument>({"zero: ", name_of(kind), " '", tag.what, ' ', tag.index,
                                      "' on rank ", rank, " got ", cuts.size(),
                                      " cuts; a group of ", world, " ranks needs ", world + 1,
                                      ", which begin with 0 and do not decrease."});
    }
    return {kind, type, cuts.back(), hash_of(cuts), tag};
}

/// @copydoc cut_call
inline CollectiveCall broadcast_call(DType type, std::size_t elements, int root, CollectiveTag tag,
                                     std::size_t world) {
    if (root < 0 || static_cast<std::size_t>(root) >= world) {
        throw_error<InvalidArgument>(
            {"zero: broadcast from rank ", root, ", which is not in the group of ", world, '.'});
    }
    return {CollectiveKind::broadcast, type, elements, static_cast<std::uint64_t>(root), tag};
}

/// @copydoc cut_call
inline void require_memory(CollectiveCall const& call, void const* memory, std::size_t elements,
                           std::size_t rank) {
    if (memory == nullptr && elements != 0) {
        throw_error<InvalidArgument>({"zero: ", describe(call), " on rank ", rank,
                                      " got a null pointer for ", elements, " elements."});
    }
}

} // namespace ZERO_NAMESPACE::detail
