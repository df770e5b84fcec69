#pragma once

#include "group_place.hpp"

#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE::detail {

ZERO_INLINE CollectiveCall GroupPlace::reduce_scatter(DType type, void const* send,
                                                      void const* receive,
                                                      std::span<std::size_t const> cuts,
                                                      CollectiveTag tag) const {
    auto const call = cut_call(CollectiveKind::reduce_scatter, type, cuts, tag);
    require_memory(call, send, call.count);
    require_memory(call, receive, own(cuts));
    return call;
}

ZERO_INLINE void GroupPlace::require_pieces(std::span<SentPiece const> pieces,
                                            std::span<std::size_t const> cuts,
                                            CollectiveTag const& tag) const {
    std::size_t const count = cuts.empty() ? 0 : cuts.back();
    std::size_t end = 0;
    for (SentPiece const& piece : pieces) {
        if (piece.begin < end || piece.begin > count || piece.elements > count - piece.begin) {
            throw_error<InvalidArgument>(
                {"zero: reduce-scatter '", tag.what, ' ', tag.index, "' on rank ", rank,
                 ": a piece of ", piece.elements, " elements at ", piece.begin,
                 " begins before the end of the one before it (", end, "), or ends after the ",
                 count, " that are sent; give pieces in ascending order, each element once."});
        }
        end = piece.begin + piece.elements;
    }
    if (pieces.empty() && count != 0) {
        throw_error<InvalidArgument>({"zero: reduce-scatter '", tag.what, ' ', tag.index,
                                      "' on rank ", rank, " got no pieces of ", count,
                                      " elements; a piece without memory is sent as zeros."});
    }
}

ZERO_INLINE CollectiveCall GroupPlace::all_gather(DType type, void const* send, void const* receive,
                                                  std::span<std::size_t const> cuts,
                                                  CollectiveTag tag) const {
    auto const call = cut_call(CollectiveKind::all_gather, type, cuts, tag);
    require_memory(call, send, own(cuts));
    require_memory(call, receive, call.count);
    return call;
}

ZERO_INLINE CollectiveCall GroupPlace::all_reduce(DType type, void const* send, void const* receive,
                                                  std::span<std::size_t const> cuts,
                                                  CollectiveTag tag) const {
    auto const call = cut_call(CollectiveKind::all_reduce, type, cuts, tag);
    require_memory(call, send, call.count);
    require_memory(call, receive, call.count);
    return call;
}

ZERO_INLINE CollectiveCall GroupPlace::exchange(DType type, void const* send, void const* receive,
                                                std::span<std::size_t const> cuts,
                                                CollectiveTag tag) const {
    auto const call = cut_call(CollectiveKind::exchange, type, cuts, tag);
    std::size_t const pieces = world * own(cuts);
    require_memory(call, send, call.count);
    require_memory(call, receive, pieces);
    auto const sent = reinterpret_cast<std::uintptr_t>(send);
    auto const received = reinterpret_cast<std::uintptr_t>(receive);
    if (pieces != 0 && sent < received + pieces * size_of(type)
        && received < sent + call.count * size_of(type)) {
        throw_error<InvalidArgument>({"zero: ", describe(call), " on rank ", rank,
                                      " receives into the memory that it sends; an exchange is "
                                      "never in place: give it other memory."});
    }
    return call;
}

ZERO_INLINE CollectiveCall GroupPlace::broadcast(DType type, void const* buffer,
                                                 std::size_t elements, int root,
                                                 CollectiveTag tag) const {
    if (root < 0 || static_cast<std::size_t>(root) >= world) {
        throw_error<InvalidArgument>(
            {"zero: broadcast from rank ", root, ", which is not in the group of ", world, '.'});
    }
    CollectiveCall const call{CollectiveKind::broadcast, type, elements,
                              static_cast<std::uint64_t>(root), tag};
    require_memory(call, buffer, elements);
    return call;
}

ZERO_INLINE CollectiveCall GroupPlace::integers(std::int64_t const* values, std::size_t elements,
                                                IntegerReduction reduction,
                                                CollectiveTag tag) const {
    CollectiveCall const call{CollectiveKind::integers, DType::int64, elements,
                              static_cast<std::uint64_t>(reduction), tag};
    require_memory(call, values, elements);
    return call;
}

ZERO_INLINE CollectiveCall GroupPlace::integers(std::int64_t const* values, std::size_t sums,
                                                std::size_t minima, CollectiveTag tag) const {
    CollectiveCall const call{CollectiveKind::integers, DType::int64, sums + minima,
                              CollectiveCall::detail_of(sums), tag};
    require_memory(call, values, sums + minima);
    return call;
}

ZERO_INLINE CollectiveCall GroupPlace::cut_call(CollectiveKind kind, DType type,
                                                std::span<std::size_t const> cuts,
                                                CollectiveTag tag) const {
    if (!are_cuts(cuts, world)) {
        throw_error<InvalidArgument>({"zero: ", name_of(kind), " '", tag.what, ' ', tag.index,
                                      "' on rank ", rank, " got ", cuts.size(),
                                      " cuts; a group of ", world, " ranks needs ", world + 1,
                                      ", which begin with 0 and do not decrease."});
    }
    return {kind, type, cuts.back(), hash_of(cuts), tag};
}

ZERO_INLINE void GroupPlace::require_memory(CollectiveCall const& call, void const* memory,
                                            std::size_t elements) const {
    if (memory == nullptr && elements != 0) {
        throw_error<InvalidArgument>({"zero: ", describe(call), " on rank ", rank,
                                      " got a null pointer for ", elements, " elements."});
    }
}

} // namespace ZERO_NAMESPACE::detail
