#include "families.hpp"

#include "support/catch.hpp"
#include "support/shapes.hpp"

#include <zero/layout/lease_plan.hpp>
#include <zero/layout/padding.hpp>

#include <algorithm>
#include <random>
#include <set>

// Plans of random models against a simulation of the definition.

namespace zero::test::lease_plan_random_test {

namespace {

using Buckets = std::set<std::size_t>;

bool is_in(FlatLayout const& layout, std::size_t bucket, std::size_t unit) {
    for (Piece const& piece : layout.pieces(bucket)) {
        auto const& units = layout.parameter(piece.parameter).units;
        if (std::find(units.begin(), units.end(), unit) != units.end()) {
            return true;
        }
    }
    return false;
}

/// Returns the gradient buckets that are in flight while each unit is in its backward pass.
std::vector<Buckets> gradients_in_flight(FlatLayout const& layout, bool in_index_order) {
    std::vector<Buckets> steps;
    Buckets open;
    Buckets reduced;
    Buckets reduced_last; // buckets that the unit before reduced
    std::set<std::size_t> reported;
    auto const is_complete = [&](std::size_t bucket) {
        for (Piece const& piece : layout.pieces(bucket)) {
            for (std::size_t const unit : layout.parameter(piece.parameter).units) {
                if (reported.count(unit) == 0) {
                    return false;
                }
            }
        }
        return true;
    };
    for (std::size_t const unit : layout.unit_order()) {
        if (layout.unit_parameters(unit).empty()) {
            continue; // a number that was left out is no step
        }
        for (std::size_t bucket = 0; bucket < layout.trainable_buckets(); ++bucket) {
            if (is_in(layout, bucket, unit)) {
                open.insert(bucket);
            }
        }
        steps.push_back(open);
        steps.back().insert(reduced_last.begin(), reduced_last.end());
        reduced_last.clear();
        reported.insert(unit);
        for (std::size_t bucket = 0; bucket < layout.trainable_buckets(); ++bucket) {
            if (is_complete(bucket)) {
                if (open.erase(bucket) != 0) {
                    reduced_last.insert(bucket);
                }
            } else if (in_index_order) {
                break;
            }
        }
    }
    return steps;
}

/// Returns the gathered buckets of each two units that follow one another in the order of use:
/// forward, then backward.
std::vector<Buckets> parameters_in_flight(FlatLayout const& layout) {
    std::vector<Buckets> steps;
    std::vector<std::size_t> order;
    auto const add = [&](std::size_t unit) {
        if (!layout.unit_parameters(unit).empty()) {
            order.push_back(unit);
        }
    };
    for (std::size_t unit = 0; unit < layout.units(); ++unit) {
        add(unit);
    }
    for (std::size_t const unit : layout.unit_order()) {
        add(unit);
    }
    order.push_back(order.front()); // the first unit of the next micro-step
    for (std::size_t position = 0; position < order.size(); ++position) {
        steps.emplace_back();
        for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
            if (is_in(layout, bucket, order[position])
                || (position + 1 < order.size() && is_in(layout, bucket, order[position + 1]))) {
                steps.back().insert(bucket);
            }
        }
    }
    return steps;
}

/// Returns a defect of a plan for buckets in flight together, or "".
std::string problem_in(LeasePlan const& plan, FlatLayout const& layout,
                       std::vector<Buckets> const& steps) {
    for (Range const& place : plan.places) {
        if (place.begin % granularity != 0 || place.end % granularity != 0) {
            return "a place is not aligned";
        }
        if (place.end > plan.planned_elements()) {
            return "a place ends after the buffer";
        }
    }
    std::size_t most = 0;
    for (Buckets const& buckets : steps) {
        std::size_t elements = 0;
        for (std::size_t const bucket : buckets) {
            elements += layout.elements(bucket);
            if (plan.places[bucket].size() < layout.elements(bucket)) {
                return "a place is too small";
            }
            for (std::size_t const other : buckets) {
                if (other < bucket
                    && !intersection(plan.places[other], plan.places[bucket]).is_empty()) {
                    return "two places overlap";
                }
            }
        }
        if (elements > plan.planned_elements()) {
            return "the buffer is too small";
        }
        most = std::max(most, elements);
    }
    std::size_t in_peak = 0;
    for (std::size_t const bucket : plan.peak) {
        in_peak += layout.elements(bucket);
    }
    if (in_peak != most) {
        return "the peak is not the most in flight";
    }
    Buckets const peak(plan.peak.begin(), plan.peak.end());
    bool const is_step = std::any_of(steps.begin(), steps.end(), [&](Buckets const& buckets) {
        return std::includes(buckets.begin(), buckets.end(), peak.begin(), peak.end());
    });
    if (!is_step && most != 0) {
        return "the buckets of the peak are not in flight together";
    }
    return "";
}

/// Returns a problem in one of the three plans of a layout, or "".
std::string problem_in(FlatLayout const& layout, std::size_t spares) {
    std::string problem;
    for (bool const in_index_order : {false, true}) {
        problem += problem_in(plan_gradient_leases(layout, in_index_order, spares), layout,
                              gradients_in_flight(layout, in_index_order));
    }
    auto const row = stage_row(3, ReductionSchedule::every_micro_step);
    problem += problem_in(plan_parameter_leases(layout, row, Storage::owned, spares), layout,
                          parameters_in_flight(layout));
    return problem;
}

std::vector<ParameterSpec> random_model(std::mt19937_64& random) {
    std::vector<std::size_t> sizes(1 + random() % 12);
    for (std::size_t& size : sizes) {
        size = random() % 300;
    }
    auto model = model_of_sizes(sizes);
    for (ParameterSpec& spec : model) {
        spec.units = {random() % 5};
        if (random() % 4 == 0) {
            spec.units.push_back(5 + random() % 12); // some units are far apart
        }
        spec.trainable = random() % 5 != 0;
    }
    return model;
}

std::vector<std::size_t> random_order(std::mt19937_64& random, std::size_t units) {
    std::vector<std::size_t> order;
    for (std::size_t unit = 0; unit < units; ++unit) {
        order.insert(order.begin() + static_cast<std::ptrdiff_t>(random() % (order.size() + 1)),
                     unit);
    }
    return order;
}

} // namespace

TEST_CASE("In random models, buckets in flight at once never share memory") {
    std::mt19937_64 random(99);
    for (int round = 0; round < 400; ++round) {
        auto const model = random_model(random);
        std::size_t const units = FlatLayout(model, 1, {}).units();
        auto const order = random_order(random, round % 2 == 0 ? units : 0);
        for_each_family(2048, [&](auto const& family) {
            for (bool const is_inside : {false, true}) {
                FlatLayout const layout = family.make(model, {3, 4, is_inside, {}, order});
                CHECK(problem_in(layout, random() % 3) == "");
            }
        });
    }
}

TEST_CASE("The same comparison finds overlaps in a plan whose places all begin at 0") {
    auto const layout = make_layout<ContiguousPartitioner, UnitBucketer>(
        model_of_sizes({100, 100, 100}), {1, 4, true});
    LeasePlan plan = plan_gradient_leases(layout, true);
    auto const steps = gradients_in_flight(layout, true);
    REQUIRE(problem_in(plan, layout, steps) == "");
    CHECK(plan.elements == 256);
    for (Range& place : plan.places) {
        place = {0, place.size()};
    }
    CHECK(problem_in(plan, layout, steps) == "two places overlap");
    plan = plan_gradient_leases(layout, true);
    plan.peak = {0};
    CHECK(problem_in(plan, layout, steps) == "the peak is not the most in flight");
    plan.peak = {0, 2};
    CHECK(problem_in(plan, layout, steps) == "the buckets of the peak are not in flight together");
    plan = plan_gradient_leases(layout, true);
    plan.elements = 128;
    CHECK(problem_in(plan, layout, steps) == "a place ends after the buffer");
}

} // namespace zero::test::lease_plan_random_test
