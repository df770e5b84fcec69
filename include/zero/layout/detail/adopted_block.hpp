#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../bucket_plan.hpp"
#include "../padding.hpp"
#include "../parameter_spec.hpp"
#include "../piece.hpp"
#include "../range.hpp"
#include "make_buckets.hpp"

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Where the parameters lie in a block of the caller's memory, and what is collected while
/// it is cut.
struct AdoptedBlock {
    std::span<ParameterSpec const> parameters;
    std::span<std::size_t const> offsets;
    std::size_t world;
    std::vector<BucketPlan> buckets;
    std::vector<Piece> leftovers;

    [[nodiscard]] Range range(std::size_t index) const {
        return {offsets[index], offsets[index] + parameters[index].elements};
    }

    /// @brief The parts of the parameters of `run` (descending addresses) inside `part` of the
    /// block, ascending.
    [[nodiscard]] std::vector<Piece> pieces(std::span<std::size_t const> run, Range part) const {
        std::vector<Piece> pieces;
        for (std::size_t position = run.size(); position-- > 0;) {
            Range const common = intersection(range(run[position]), part);
            if (!common.is_empty()) {
                pieces.push_back({run[position], common.begin - offsets[run[position]],
                                  common.begin - part.begin, common.size()});
            }
        }
        return pieces;
    }

    void add_bucket(std::span<std::size_t const> run, Range part) {
        BucketPlan bucket;
        bucket.pieces = pieces(run, part);
        bucket.block_begin = part.begin;
        for (std::size_t rank = 0; rank <= world; ++rank) {
            bucket.cuts.push_back(part.size() / world * rank);
        }
        buckets.push_back(std::move(bucket));
    }

    void add_leftovers(std::span<std::size_t const> run, Range part) {
        for (Piece const& piece : pieces(run, part)) {
            leftovers.push_back(piece);
        }
    }

    /// @brief Cuts one run of adjacent trainable parameters: what lies between multiples of W *
    /// granularity directly, the rest staged.
    template <class Bucketer>
    void cut(std::span<std::size_t const> run, typename Bucketer::Options bucketing,
             std::size_t element_bytes) {
        std::size_t const step = world * granularity;
        Range const whole{range(run.back()).begin, range(run.front()).end};
        Range const body{round_up(whole.begin, step), round_down(whole.end, step)};
        if (body.begin >= body.end) {
            add_leftovers(run, whole);
            return;
        }
        add_leftovers(run, {body.end, whole.end});
        std::size_t top = body.end;
        for_runs(parameters, run, false, [&](std::span<std::size_t const> part) {
            for_groups<Bucketer>(parameters, part, bucketing, element_bytes,
                                 [&](std::span<std::size_t const> group) {
                                     std::size_t const bottom = detail::larger(
                                         body.begin, round_down(range(group.back()).begin, step));
                                     if (bottom < top) {
                                         add_bucket(run, {bottom, top});
                                         top = bottom;
                                     }
                                 });
        });
        add_leftovers(run, {whole.begin, body.begin});
    }
};

} // namespace ZERO_NAMESPACE::detail
