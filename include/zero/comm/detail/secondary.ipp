#pragma once

#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../secondary.hpp"

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE void require_secondary_ranks(std::span<std::uint64_t const> asked,
                                              std::size_t shard, char const* what) {
    std::uint64_t const ranks = asked[0];
    for (std::size_t rank = 1; rank < asked.size(); ++rank) {
        if (asked[rank] != ranks) {
            throw_error<LayoutMismatch>({"zero: Groups: ", what, " is ", ranks, " on rank 0 and ",
                                         asked[rank], " on rank ", rank,
                                         "; give the same number on all ranks."});
        }
    }
    if (ranks <= 1 || ranks == shard || shard % ranks != 0) {
        throw_error<InvalidArgument>(
            {"zero: Groups: ", what, " is ", ranks, ", and states are cut over ", shard,
             " ranks; give the number of ranks that share a copy, a divisor of ", shard,
             " that is neither 1 nor ", shard, ", or leave zero::Secondary out."});
    }
}

ZERO_COLD_INLINE void check_secondary_parts(std::span<std::uint64_t const> found) {
    for (std::size_t rank = 0; rank < found.size(); ++rank) {
        if (found[rank] != 0) {
            throw_error<InvalidArgument>(
                {"zero: Groups: on rank ", rank,
                 " the secondary part holds ranks of two replicas; split the shard group."});
        }
    }
}

} // namespace ZERO_NAMESPACE::detail
