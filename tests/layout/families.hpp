#pragma once

// All combinations of partitioner and bucketer. A test writes a property once and checks it for
// each.

#include "layout_checks.hpp"

#include <zero/layout/balanced_partitioner.hpp>
#include <zero/layout/contiguous_partitioner.hpp>
#include <zero/layout/dealt_group_partitioner.hpp>
#include <zero/layout/gather_options.hpp>
#include <zero/layout/make_layout.hpp>
#include <zero/layout/per_tensor_partitioner.hpp>
#include <zero/layout/proportional_partitioner.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/layout/size_capped_bucketer.hpp>
#include <zero/layout/whole_group_partitioner.hpp>
#include <zero/layout/whole_matrix_partitioner.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace zero::test {

template <class B>
inline constexpr char const* bucketer_name_of = "size-capped";
template <>
inline constexpr char const* bucketer_name_of<UnitBucketer> = "unit";
template <>
inline constexpr char const* bucketer_name_of<ParameterBucketer> = "parameter";
template <>
inline constexpr char const* bucketer_name_of<SingleBucketer> = "single";

template <class P, class B>
struct Family {
    using Partitioner = P;
    using Bucketer = B;
    char const* name;
    typename B::Options bucketing{};

    [[nodiscard]] FlatLayout make(std::vector<ParameterSpec> const& model,
                                  LayoutOptions const& options) const {
        return make_layout<P, B>(model, options, bucketing);
    }

    [[nodiscard]] static std::string bucketer_name() { return bucketer_name_of<B>; }

    [[nodiscard]] static LayoutRules rules(LayoutOptions const& options) {
        return {true, P::is_even, P::cuts_parameters, options.buckets_inside_units, P::cuts_group};
    }
};

/// @brief Calls `visit(family)` for each bucketer with one partitioner.
template <class P, class Visitor>
void for_each_bucketer(char const* name, std::size_t bucket_bytes, Visitor&& visit) {
    visit(Family<P, SizeCappedBucketer>{name, {bucket_bytes}});
    visit(Family<P, UnitBucketer>{name});
    visit(Family<P, ParameterBucketer>{name});
    visit(Family<P, SingleBucketer>{name});
}

/// @brief Calls `visit(family)` for each combination; `bucket_bytes` is the capacity of the
/// size-capped bucketer.
template <class Visitor>
void for_each_family(std::size_t bucket_bytes, Visitor&& visit) {
    for_each_bucketer<ContiguousPartitioner>("contiguous", bucket_bytes, visit);
    for_each_bucketer<RoundRobinPartitioner>("round-robin", bucket_bytes, visit);
    for_each_bucketer<BalancedPartitioner>("balanced", bucket_bytes, visit);
    for_each_bucketer<WholeGroupPartitioner>("whole group", bucket_bytes, visit);
    for_each_bucketer<DealtGroupPartitioner>("dealt group", bucket_bytes, visit);
    for_each_bucketer<ProportionalPartitioner>("equal shares", bucket_bytes, visit);
    for_each_bucketer<WholeMatrixPartitioner>("whole matrices", bucket_bytes, visit);
    visit(Family<PerTensorPartitioner, ParameterBucketer>{"per tensor"});
}

/// @brief Returns the first problem of any family, with and without buckets inside units, with the
/// name of the family and W. Empty if there is none.
inline std::string problem_in_any_family(std::vector<ParameterSpec> const& model, std::size_t world,
                                         std::size_t bucket_bytes = 1024) {
    std::string first;
    for_each_family(bucket_bytes, [&](auto const& family) {
        for (bool const is_inside : {false, true}) {
            LayoutOptions const options{world, 4, is_inside};
            std::string const problem =
                problem_in(family.make(model, options), family.rules(options));
            if (first.empty() && !problem.empty()) {
                first = std::string(family.name) + ", " + family.bucketer_name()
                        + (is_inside ? ", inside units" : "") + ", W = " + std::to_string(world)
                        + ": " + problem;
            }
        }
    });
    return first;
}

} // namespace zero::test
