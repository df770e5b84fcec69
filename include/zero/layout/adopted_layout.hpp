#pragma once

#include "../core/minmax.hpp"
#include "../core/throw_error.hpp"
#include "make_layout.hpp"
#include "order_by.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace zero {

namespace detail {

/// @brief Where the parameters lie in a block of the caller's memory, and what is collected while it is cut.
struct AdoptedBlock {
    std::span<ParameterSpec const> parameters;
    std::span<std::size_t const> offsets;
    std::size_t world;
    std::vector<BucketPlan> buckets;
    std::vector<Piece> leftovers;

    [[nodiscard]] Range range(std::size_t index) const { return {offsets[index], offsets[index] + parameters[index].elements}; }

    /// @brief The parts of the parameters of `run` (descending addresses) inside `part` of the block, ascending.
    [[nodiscard]] std::vector<Piece> pieces(std::span<std::size_t const> run, Range part) const {
        std::vector<Piece> pieces;
        for (std::size_t position = run.size(); position-- > 0;) {
            Range const common = intersection(range(run[position]), part);
            if (!common.is_empty()) {
                pieces.push_back({run[position], common.begin - offsets[run[position]], common.begin - part.begin, common.size()});
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

    /// @brief Cuts one run of adjacent trainable parameters: what lies between multiples of W * granularity directly, the rest staged.
    template <class Bucketer>
    void cut(std::span<std::size_t const> run, typename Bucketer::Options bucketing, std::size_t element_bytes) {
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
            for_groups<Bucketer>(parameters, part, bucketing, element_bytes, [&](std::span<std::size_t const> group) {
                std::size_t const bottom = detail::larger(body.begin, round_down(range(group.back()).begin, step));
                if (bottom < top) {
                    add_bucket(run, {bottom, top});
                    top = bottom;
                }
            });
        });
        add_leftovers(run, {whole.begin, body.begin});
    }
};

} // namespace detail

/// @brief The geometry for parameters that lie in one block of the caller's memory, which is communicated in place, without a copy.
///
/// Bucket edges are multiples of W * 64 elements from the start of the block and never past its end, so they fall inside parameters.
/// What is left over at the ends of each run of adjacent trainable parameters goes through one small staged bucket. Frozen parameters
/// stay where they are and have no bucket. Only even, contiguous cuts are possible.
/// @param offsets first element of each parameter, counted from the start of the block
/// @throws InvalidArgument also when two parameters overlap, or a `unit_order` is given, which could not be followed
template <class Bucketer>
FlatLayout make_adopted_layout(std::vector<ParameterSpec> parameters, std::span<std::size_t const> offsets, LayoutOptions const& options,
                               typename Bucketer::Options bucketing = typename Bucketer::Options()) {
    validate(detail::as_span(parameters), options);
    Bucketer::validate(bucketing);
    if (!options.unit_order.empty()) {
        detail::throw_error<InvalidArgument>({"zero: unit_order would be ignored, because an adopted block is cut in the order of its addresses; leave it out."});
    }
    if (offsets.size() != parameters.size()) {
        detail::throw_error<InvalidArgument>({"zero: ", offsets.size(), " offsets are given for ", parameters.size(),
                                              " parameters of an adopted block; give one each."});
    }
    detail::AdoptedBlock block{detail::as_span(parameters), offsets, options.world, {}, {}};
    std::vector<std::size_t> const ascending = detail::order_by(std::vector<std::uint64_t>(offsets.begin(), offsets.end()));
    std::vector<std::size_t> order; // gradient-ready order is backwards
    for (std::size_t position = ascending.size(); position-- > 0;) {
        if (parameters[ascending[position]].elements != 0) {
            order.push_back(ascending[position]);
        }
    }
    std::vector<std::size_t> run;
    auto const finish = [&] {
        if (!run.empty()) {
            block.template cut<Bucketer>(run, bucketing, options.element_bytes);
            run.clear();
        }
    };
    for (std::size_t position = 0; position < order.size(); ++position) {
        std::size_t const index = order[position];
        std::size_t const next = position == 0 ? block.range(index).end : offsets[order[position - 1]];
        if (block.range(index).end > next) {
            detail::throw_error<InvalidArgument>({"zero: parameters '", parameters[index].name, "' and '", parameters[order[position - 1]].name,
                                                  "' overlap in the adopted block; for a tied parameter register it once and list all its units."});
        }
        if (block.range(index).end < next) {
            finish();
        }
        if (parameters[index].trainable) {
            run.push_back(index);
        } else {
            finish();
        }
    }
    finish();
    if (!block.leftovers.empty()) {
        ContiguousPartitioner::State state;
        block.buckets.push_back(detail::place<ContiguousPartitioner>(block.parameters, std::move(block.leftovers), options.world, state));
        block.buckets.back().is_staged = true;
    }
    return {std::move(parameters), options.world, std::move(block.buckets)};
}

} // namespace zero
