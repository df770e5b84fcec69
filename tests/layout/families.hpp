#pragma once

// All combinations of partitioner and bucketer, so that a property is written once.

#include "layout_checks.hpp"

#include "zero/layout/make_layout.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace zero::test {

template <class P, class B>
struct Family {
    using Partitioner = P;
    using Bucketer = B;
    char const* name;
    typename B::Options bucketing{};

    [[nodiscard]] FlatLayout make(std::vector<ParameterSpec> const& model, LayoutOptions const& options) const {
        return make_layout<P, B>(model, options, bucketing);
    }

    [[nodiscard]] static LayoutRules rules(LayoutOptions const& options) {
        return {true, P::is_even, P::cuts_parameters, options.buckets_inside_units};
    }
};

/// @brief `visit(family)` for each; `bucket_bytes` is the cap of the size-capped bucketer.
template <class Visitor>
void for_each_family(std::size_t bucket_bytes, Visitor&& visit) {
    visit(Family<ContiguousPartitioner, SizeCappedBucketer>{"contiguous, size-capped", {bucket_bytes}});
    visit(Family<ContiguousPartitioner, UnitBucketer>{"contiguous, unit"});
    visit(Family<ContiguousPartitioner, SingleBucketer>{"contiguous, single"});
    visit(Family<RoundRobinPartitioner, SizeCappedBucketer>{"round-robin, size-capped", {bucket_bytes}});
    visit(Family<RoundRobinPartitioner, UnitBucketer>{"round-robin, unit"});
    visit(Family<RoundRobinPartitioner, SingleBucketer>{"round-robin, single"});
}

/// @brief The first problem of any family with and without buckets inside units, with the family's name and W; empty when all are well.
inline std::string problem_in_any_family(std::vector<ParameterSpec> const& model, std::size_t world, std::size_t bucket_bytes = 1024) {
    std::string first;
    for_each_family(bucket_bytes, [&](auto const& family) {
        for (bool const is_inside : {false, true}) {
            LayoutOptions const options{world, 4, is_inside};
            std::string const problem = problem_in(family.make(model, options), family.rules(options));
            if (first.empty() && !problem.empty()) {
                first = std::string(family.name) + (is_inside ? ", inside units" : "") + ", W = " + std::to_string(world) + ": " + problem;
            }
        }
    });
    return first;
}

} // namespace zero::test
