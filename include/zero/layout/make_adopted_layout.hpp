#pragma once

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/error.hpp"
#include "contiguous_partitioner.hpp"
#include "detail/adopted_block.hpp"
#include "detail/make_buckets.hpp"
#include "detail/order_by.hpp"
#include "detail/validate_parameters.hpp"
#include "flat_layout.hpp"
#include "layout_options.hpp"
#include "parameter_spec.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief The geometry for parameters that lie in one block of the caller's memory, which is
/// communicated in place, without a copy.
///
/// Bucket edges are multiples of W * 64 elements from the start of the block and never past its
/// end, so they fall inside parameters. What is left over at the ends of each run of adjacent
/// trainable parameters goes through one small staged bucket. Frozen parameters stay where they are
/// and have no bucket. Only even, contiguous cuts are possible.
/// @param offsets first element of each parameter, counted from the start of the block
/// @throws InvalidArgument also when two parameters overlap, or a `unit_order` is given, which
/// could not be followed
template <class Bucketer>
FlatLayout
make_adopted_layout(std::vector<ParameterSpec> parameters, std::span<std::size_t const> offsets,
                    LayoutOptions const& options,
                    typename Bucketer::Options bucketing = typename Bucketer::Options()) {
    detail::validate_parameters(detail::as_span(parameters), options);
    Bucketer::validate(bucketing);
    if (!options.unit_order.empty()) {
        detail::throw_error<InvalidArgument>(
            {"zero: unit_order would be ignored, because an adopted block is cut in the order of "
             "its addresses; leave it out."});
    }
    if (offsets.size() != parameters.size()) {
        detail::throw_error<InvalidArgument>({"zero: ", offsets.size(), " offsets are given for ",
                                              parameters.size(),
                                              " parameters of an adopted block; give one each."});
    }
    detail::AdoptedBlock block{detail::as_span(parameters), offsets, options.world, {}, {}};
    std::vector<std::size_t> const ascending =
        detail::order_by(std::vector<std::uint64_t>(offsets.begin(), offsets.end()));
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
        std::size_t const next =
            position == 0 ? block.range(index).end : offsets[order[position - 1]];
        if (block.range(index).end > next) {
            detail::throw_error<InvalidArgument>(
                {"zero: parameters '", parameters[index].name, "' and '",
                 parameters[order[position - 1]].name,
                 "' overlap in the adopted block; for a tied parameter register it once and list "
                 "all its units."});
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
        block.buckets.push_back(detail::place<ContiguousPartitioner>(
            block.parameters, std::move(block.leftovers), options.world, state));
        block.buckets.back().is_staged = true;
    }
    return {std::move(parameters), options.world, std::move(block.buckets)};
}

} // namespace ZERO_NAMESPACE
