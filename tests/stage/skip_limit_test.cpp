#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"

#include <zero/ops/sgd.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace zero::test::skip_limit_test {

namespace {

/// Makes a step; rank 1 writes the gradient.
template <class Engine>
StepReport step(Engine& engine, int rank, float gradient) {
    engine.begin_step();
    engine.begin_micro_step(true);
    engine.gradients(0)[0][0] = rank == 1 ? gradient : 0.0F;
    engine.gradients_ready(0);
    engine.end_micro_step();
    return engine.step(0.1).report();
}

constexpr float bad = std::numeric_limits<float>::infinity();

} // namespace

TEST_CASE("A report counts the steps that were skipped in a row") {
    auto const ranks =
        on_ranks<std::vector<std::uint64_t>>(2, [](LoopbackCommunicator& communicator) {
            ZeroStage<2, Sgd> engine(communicator, {{.name = "w", .elements = 3}});
            std::vector<std::uint64_t> counts;
            for (float const gradient : {1.0F, bad, bad, 1.0F, bad, bad, bad, 1.0F}) {
                counts.push_back(step(engine, communicator.rank(), gradient).skipped_in_a_row);
            }
            return counts;
        });
    CHECK(ranks == std::vector<std::vector<std::uint64_t>>(2, {0, 1, 2, 0, 1, 2, 3, 0}));
}

TEST_CASE("As many skipped steps in a row as the option allows throw on every rank") {
    in_every_stage([]<int N>() {
        auto const ranks =
            on_ranks<std::vector<Outcome>>(2, [](LoopbackCommunicator& communicator) {
                ZeroStage<N, Sgd> engine(communicator, {{.name = "w", .elements = 3}},
                                         {.skip_limit = 2});
                std::vector<Outcome> outcomes;
                for (float const gradient : {bad, 1.0F, bad, bad, bad, 1.0F}) {
                    outcomes.push_back(
                        outcome_of([&] { (void)step(engine, communicator.rank(), gradient); }));
                }
                return outcomes;
            });
        for (auto const& outcomes : ranks) {
            CHECK(outcomes[2].type == "returned");
            CHECK(outcomes[3].type == "TooManySkips");
            CHECK_THAT(outcomes[3].message,
                       contains_text("2 steps in a row were skipped, the last because gradients "
                                     "are infinite or NaN, first element 0 of parameter 'w'"));
            CHECK(outcomes[4].type
                  == "TooManySkips"); // the engine remains usable after the exception
            CHECK(outcomes[5].type == "returned");
        }
    });
}

TEST_CASE("Ranks with different skip limits are refused") {
    auto const outcomes = on_ranks<Outcome>(2, [](LoopbackCommunicator& communicator) {
        return outcome_of([&] {
            ZeroStage<1, Sgd> engine(communicator, {{.name = "w", .elements = 3}},
                                     {.skip_limit = static_cast<std::size_t>(communicator.rank())});
        });
    });
    CHECK(outcomes[0].type == "LayoutMismatch");
    CHECK_THAT(outcomes[0].message, contains_text("skip_limit"));
}

} // namespace zero::test::skip_limit_test
