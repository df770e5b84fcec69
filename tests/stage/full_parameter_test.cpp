#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <cstddef>
#include <string>
#include <vector>

#include <zero/comm/recording.hpp>
#include <zero/stage/zero_stage.hpp>

// `for_each_full_parameter` gathers units, not parameters.

namespace zero::test::full_parameter_test {

namespace {

constexpr int world = 2;

struct Seen {
    std::vector<std::size_t> visited;
    std::vector<float> firsts;
    std::size_t gathers = 0;
};

/// Visits all full parameters in stage 3 and returns the observations of rank 1. `units` lists the
/// units of each parameter. Every element of a parameter is the index of the parameter.
Seen visit(std::vector<std::vector<std::size_t>> const& units) {
    return on_ranks<Seen>(world, [&](LoopbackCommunicator& transport) {
        Recording<LoopbackCommunicator> communicator(transport);
        std::vector<Parameter<float>> parameters;
        for (std::size_t index = 0; index < units.size(); ++index) {
            parameters.push_back({.name = std::to_string(index),
                                  .elements = 70,
                                  .units = units[index],
                                  .initialise = [index](std::size_t, std::span<float> values) {
                                      for (float& value : values) {
                                          value = static_cast<float>(index);
                                      }
                                  }});
        }
        ZeroStage<3, Recording<LoopbackCommunicator>> engine(communicator, parameters);
        std::size_t const before = communicator.recorded()[CollectiveKind::all_gather].calls;
        Seen seen;
        engine.for_each_full_parameter([&](std::size_t parameter, std::span<float const> values) {
            seen.visited.push_back(parameter);
            seen.firsts.push_back(values[69]);
        });
        std::size_t const comparisons = 1; // of the call over the ranks
        seen.gathers =
            communicator.recorded()[CollectiveKind::all_gather].calls - before - comparisons;
        return seen;
    })[1];
}

} // namespace

TEST_CASE("A visit of all full parameters gathers a unit once for all its parameters") {
    Seen const seen = visit({{0}, {0}, {0}, {1}, {1}, {1}, {1}});
    CHECK(seen.visited == std::vector<std::size_t>{0, 1, 2, 3, 4, 5, 6});
    CHECK(seen.firsts == std::vector<float>{0, 1, 2, 3, 4, 5, 6});
    CHECK(seen.gathers == 2);
}

TEST_CASE("A visit of all full parameters gathers a unit again where another one comes between") {
    Seen const seen = visit({{0}, {1}, {0}, {1}});
    CHECK(seen.visited == std::vector<std::size_t>{0, 1, 2, 3});
    CHECK(seen.firsts == std::vector<float>{0, 1, 2, 3});
    CHECK(seen.gathers == 4);
}

TEST_CASE("A visit of all full parameters visits a shared one once, in the gathered unit") {
    Seen const seen = visit({{0}, {0, 1}, {1}});
    CHECK(seen.visited == std::vector<std::size_t>{0, 1, 2});
    CHECK(seen.firsts == std::vector<float>{0, 1, 2});
    // Each unit has its own bucket, and the shared parameter one that both units gather.
    CHECK(seen.gathers == 4);
}

} // namespace zero::test::full_parameter_test
