#pragma once

#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../model_parallel.hpp"

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE void require_model_ranks(std::span<std::uint64_t const> asked) {
    std::uint64_t const model = asked[0];
    for (std::size_t rank = 1; rank < asked.size(); ++rank) {
        if (asked[rank] != model) {
            throw_error<LayoutMismatch>({"zero: Groups: .model is ", model, " on rank 0 and ",
                                         asked[rank], " on rank ", rank,
                                         "; give the same number on all ranks."});
        }
    }
    if (model == 0 || asked.size() % model != 0) {
        throw_error<InvalidArgument>(
            {"zero: Groups: .model is ", model, ", and there are ", asked.size(),
             " ranks; give the number of ranks that hold one copy of the model, a divisor of ",
             asked.size(), "."});
    }
}

ZERO_COLD_INLINE void check_model_parts(std::span<std::uint64_t const> given, char const* what) {
    for (std::size_t rank = 1; rank * words_of_model_parts < given.size(); ++rank) {
        std::uint64_t const* const own = given.data() + rank * words_of_model_parts;
        if (own[0] != given[0] || own[1] != given[1]) {
            throw_error<InvalidArgument>(
                {"zero: Groups: the parts do not form a grid: of the ", what, ", rank 0 is number ",
                 given[1], " of ", given[0], " in its other part, and rank ", rank, " is number ",
                 own[1], " of ", own[0],
                 "; split all ranks once by the part of the model and once by its copy, with the "
                 "rank as the key."});
        }
    }
}

} // namespace ZERO_NAMESPACE::detail
