#include "support/catch.hpp"
#include "support/trained.hpp"

#include <zero/stage/zero_stage.hpp>

#include <vector>

// Stochastic rounding depends on the seed, the step and the index of an element. It does not depend
// on the number of ranks; master_weights_conformance_test.cpp shows the same for stage,
// partitioner, bucket size and storage.

namespace zero::test::stochastic_rounding_test {

namespace {

template <int N>
using Stage = ZeroStage<N, Parameters<bfloat16>, StochasticRounding>;

/// Returns all parameters after some steps in which all ranks have the same gradients, so that the
/// world size does not change the mean.
template <int N>
std::vector<std::vector<float>> alike(int ranks, std::uint64_t seed = 0) {
    return on_ranks<std::vector<std::vector<float>>>(
        ranks, [&](LoopbackCommunicator& communicator) {
            Stage<N> engine(communicator, registration<bfloat16>(toy_specs()),
                            {.master_weights = {.seed = seed}});
            for (std::uint64_t step = 0; step < 3; ++step) {
                (void)run_step(engine, 0, step);
            }
            return full_parameters(engine);
        })[0];
}

} // namespace

TEST_CASE("Stochastically rounded parameters do not depend on the number of ranks") {
    auto const expected = alike<0>(1);
    CHECK((alike<2>(2) == expected));
    CHECK((alike<3>(4) == expected));
    CHECK_FALSE((alike<2>(2, 5) == expected));
}

TEST_CASE("Ranks with different rounding seeds get a LayoutMismatch") {
    auto const outcomes = run_and_observe(2, [](LoopbackCommunicator& communicator) {
        Stage<2> const engine(
            communicator, registration<bfloat16>(toy_specs()),
            {.master_weights = {.seed = static_cast<std::uint64_t>(communicator.rank())}});
    });
    CHECK(outcomes.rethrown.type == "LayoutMismatch");
    CHECK_THAT(outcomes.rethrown.message, contains_text("master_weights"));
}

} // namespace zero::test::stochastic_rounding_test
