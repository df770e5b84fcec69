#include "support/catch.hpp"
#include "support/lockstep.hpp"
#include "support/outcome.hpp"
#include "support/toy_model.hpp"

#include <zero/stage/zero_stage.hpp>

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// What a rank of stage 3 gathers follows from options and acquisitions, not from the handles that
// it holds: one rank releases a unit before it acquires the next, one after, one skips it.

namespace zero::test::held_handles_test {

namespace {

using Stage = ZeroStage<3, LockstepCommunicator>;

enum class Holds { until_next, not_at_all, over_the_turn };

struct Seen {
    Outcome outcome;
    std::size_t wrong = 0; ///< weights that differ from those of the step
    std::uint64_t gathers = 0;
    std::vector<std::vector<float>> values;
};

/// Five units of equal size, so that mixed-up gathers would not be noticed by their size.
std::vector<ParameterSpec> equal_units() {
    std::vector<ParameterSpec> specs;
    for (std::size_t unit = 0; unit < 5; ++unit) {
        specs.push_back({"w" + std::to_string(unit), 192, {unit}, 0, true});
    }
    return specs;
}

void train(Stage& engine, Holds holds, Seen& seen) {
    for (int step = 0; step < 3; ++step) {
        auto const expected = full_parameters(engine);
        engine.begin_step();
        for (auto const micro_step : engine.micro_steps(1)) {
            std::optional<Stage::Weights> held;
            auto const use = [&](std::size_t unit) {
                std::optional<Stage::Weights> next;
                if (holds == Holds::not_at_all) {
                    held.reset();
                }
                next = engine.acquire(unit);
                if (holds == Holds::over_the_turn && held && held->unit() != unit) {
                    held.reset();
                }
                for (std::size_t i = 0; i < 192; ++i) {
                    seen.wrong += (*next)[unit][i] == expected[unit][i] ? 0 : 1;
                    if (held) {
                        seen.wrong += (*held)[held->unit()][i] == expected[held->unit()][i] ? 0 : 1;
                    }
                }
                std::swap(held, next);
                next.reset();
            };
            for (std::size_t unit = 0; unit < 5; ++unit) {
                if (holds == Holds::not_at_all && unit % 2 == 0) {
                    held.reset();
                    engine.skip(unit);
                } else {
                    use(unit);
                }
            }
            for (std::size_t unit = 5; unit-- > 0;) {
                use(unit);
                engine.gradients(unit)[unit][0] += 1.0F;
                engine.gradients_ready(unit);
            }
        }
        (void)engine.step(0.1);
    }
    seen.gathers = engine.trace_report().gathers;
    seen.values = full_parameters(engine);
}

std::vector<Seen> run(std::vector<Holds> const& holds, GatherOptions const& gather,
                      bool compares_tags) {
    std::vector<Seen> seen(holds.size());
    LockstepGroup group(holds.size(), compares_tags);
    group.run([&](std::size_t rank) {
        seen[rank].outcome = outcome_of([&] {
            LockstepCommunicator communicator(group, rank);
            host::InlineQueue queue;
            Stage engine(communicator, registration<float>(equal_units()),
                         {.gather = gather, .poison = true, .communication_queue = &queue});
            train(engine, holds[rank], seen[rank]);
        });
    });
    return seen;
}

} // namespace

TEST_CASE("Ranks that hold and release handles differently gather the same, over transports that "
          "compare tags and over those that do not") {
    std::array<GatherOptions, 5> const options{
        GatherOptions{}, GatherOptions{.prefetch_elements = 0},
        GatherOptions{.prefetch_elements = 400}, GatherOptions{.prefetch_elements = 800},
        GatherOptions{.prefetch_elements = 400, .max_reuse_distance = 0}};
    using enum Holds;
    for (std::size_t index = 0; index < options.size(); ++index) {
        auto const same = run({not_at_all, not_at_all, not_at_all}, options[index], true);
        for (bool const compares : {true, false}) {
            for (auto const& holds : {std::vector<Holds>{until_next, not_at_all, over_the_turn},
                                      std::vector<Holds>{not_at_all, until_next, until_next},
                                      std::vector<Holds>{over_the_turn, over_the_turn, not_at_all},
                                      std::vector<Holds>{until_next, until_next, until_next}}) {
                auto const seen = run(holds, options[index], compares);
                INFO("options " << index << ", compares tags " << compares << ", rank 0 holds "
                                << static_cast<int>(holds[0]));
                for (std::size_t rank = 0; rank < seen.size(); ++rank) {
                    CHECK(seen[rank].outcome.message == "");
                    CHECK(seen[rank].outcome.type == "returned");
                    CHECK(seen[rank].wrong == 0);
                    CHECK(seen[rank].gathers == same[0].gathers);
                    CHECK((seen[rank].values == same[0].values));
                }
            }
        }
    }
}

} // namespace zero::test::held_handles_test
