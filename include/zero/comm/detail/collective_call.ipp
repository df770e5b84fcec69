#pragma once

#include "collective_call.hpp"

#include "../../core/detail/text.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../integer_reduction.hpp"

namespace ZERO_NAMESPACE::detail {

ZERO_INLINE std::uint64_t hash_of(std::span<std::size_t const> cuts) noexcept {
    std::uint64_t hash = 14695981039346656037U;
    for (std::size_t const cut : cuts) {
        hash = (hash ^ cut) * 1099511628211U;
    }
    return hash;
}

ZERO_INLINE std::string describe(CollectiveTag const& tag) {
    return tag.parameter[0] == '\0' ? text({'\'', tag.what, ' ', tag.index, '\''})
                                    : text({'\'', tag.what, ' ', tag.index, "', first parameter '",
                                            tag.parameter, '\''});
}

ZERO_INLINE std::string describe(CollectiveCall const& call) {
    std::string result = text({name_of(call.kind), " of ", call.count, ' ', name_of(call.type),
                               " (", describe(call.tag), ", "});
    if (call.kind == CollectiveKind::broadcast) {
        result += text({"root ", call.detail});
    } else if (call.kind == CollectiveKind::integers) {
        result +=
            static_cast<IntegerReduction>(call.detail) == IntegerReduction::sum ? "sum" : "minimum";
    } else {
        // different numbers are enough to show that the cuts differ
        result += text({"cuts ", call.detail % 10000});
    }
    return result + ')';
}

ZERO_INLINE std::string describe(CollectiveCall const& first, std::size_t rank,
                                 CollectiveCall const& other) {
    return text({"rank 0 called ", describe(first), ", rank ", rank, " called ", describe(other)});
}

ZERO_INLINE bool are_cuts(std::span<std::size_t const> cuts, std::size_t world) noexcept {
    bool are = cuts.size() == world + 1 && cuts[0] == 0;
    for (std::size_t rank = 0; are && rank < world; ++rank) {
        are = cuts[rank] <= cuts[rank + 1];
    }
    return are;
}

ZERO_INLINE CollectiveCall cut_call(CollectiveKind kind, DType type,
                                    std::span<std::size_t const> cuts, CollectiveTag tag,
                                    std::size_t rank, std::size_t world) {
    if (!are_cuts(cuts, world)) {
        throw_error<InvalidArgument>({"zero: ", name_of(kind), " '", tag.what, ' ', tag.index,
                                      "' on rank ", rank, " got ", cuts.size(),
                                      " cuts; a group of ", world, " ranks needs ", world + 1,
                                      ", which begin with 0 and do not decrease."});
    }
    return {kind, type, cuts.back(), hash_of(cuts), tag};
}

ZERO_INLINE CollectiveCall broadcast_call(DType type, std::size_t elements, int root,
                                          CollectiveTag tag, std::size_t world) {
    if (root < 0 || static_cast<std::size_t>(root) >= world) {
        throw_error<InvalidArgument>(
            {"zero: broadcast from rank ", root, ", which is not in the group of ", world, '.'});
    }
    return {CollectiveKind::broadcast, type, elements, static_cast<std::uint64_t>(root), tag};
}

ZERO_INLINE void require_memory(CollectiveCall const& call, void const* memory,
                                std::size_t elements, std::size_t rank) {
    if (memory == nullptr && elements != 0) {
        throw_error<InvalidArgument>({"zero: ", describe(call), " on rank ", rank,
                                      " got a null pointer for ", elements, " elements."});
    }
}

ZERO_INLINE void throw_mismatch(std::string_view difference) {
    throw_error<CollectiveMismatch>(
        {"zero: ", difference, "; every rank must call the same collectives in the same order."});
}

} // namespace ZERO_NAMESPACE::detail
