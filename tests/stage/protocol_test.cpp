#include "support/catch.hpp"
#include "support/outcome.hpp"
#include "support/ranks.hpp"
#include "support/snapshot.hpp"
#include "support/stages.hpp"

#include <zero/ops/sgd.hpp>
#include <zero/stage/zero_stage.hpp>

#include <stdexcept>
#include <string>
#include <vector>

// The calls that a trainer may make inside and between steps, and the bits they must give.

namespace zero::test::protocol_test {

namespace {

/// Adds the value of one element, read outside a step.
template <class Engine>
void see(std::vector<float>& seen, Engine& engine, std::size_t unit, std::size_t parameter,
         std::size_t element) {
    auto const weights = engine.acquire(unit);
    seen.push_back(weights[parameter][element]);
}

constexpr int world = 3;
using Bits = std::vector<std::vector<std::uint32_t>>;

/// Returns the state of each rank after `train(engine, rank)`.
template <class Stage, class Train>
Bits state_after(Train const& train, typename Stage::Options const& options = {}) {
    return on_ranks<std::vector<std::uint32_t>>(world, [&](LoopbackCommunicator& communicator) {
        Stage engine(communicator, registration<float>(toy_specs()), options);
        train(engine, static_cast<std::uint64_t>(communicator.rank()));
        return snapshot(engine);
    });
}

} // namespace

TEST_CASE("After a cancelled step training continues as if the step had never begun") {
    in_every_stage([]<int N>() {
        auto const clean = [](auto& engine, std::uint64_t rank) {
            (void)run_step(engine, rank, 0, 2);
            (void)run_step(engine, rank, 1, 2);
        };
        auto const cancelled = [](int where) {
            return [where](auto& engine, std::uint64_t rank) {
                (void)run_step(engine, rank, 0, 2);
                try {
                    engine.begin_step();
                    for (auto const micro_step : engine.micro_steps(2)) {
                        if (where == 1 && micro_step == 1) {
                            auto const weights = engine.acquire(2);
                            auto const gradients = engine.gradients(4);
                            gradients[7][0] = 1e30F;
                            throw std::runtime_error("the batch is empty");
                        }
                        run_micro_step(engine, rank, 7, micro_step);
                        if (where == 0) {
                            throw std::runtime_error("the batch is empty");
                        }
                    }
                    throw std::runtime_error("the loss is negative");
                } catch (std::runtime_error const&) {
                    engine.cancel_step();
                }
                (void)run_step(engine, rank, 1, 2);
            };
        };
        auto const expected = state_after<ZeroStage<N>>(clean);
        for (int const where : {0, 1, 2}) {
            INFO("cancelled at " << where);
            CHECK((state_after<ZeroStage<N>>(cancelled(where)) == expected));
        }
        CHECK((state_after<ZeroStage<N>>(
                   [](auto& engine, std::uint64_t rank) { (void)run_step(engine, rank, 0, 2); })
               != expected));
    });
}

TEST_CASE("Micro-steps by range, by calls, announced or not, give the same bits") {
    in_every_stage([]<int N>() {
        for (auto const schedule :
             {ReductionSchedule::boundary, ReductionSchedule::every_micro_step}) {
            for (std::size_t const count : {1U, 3U}) {
                INFO(count << " micro-steps, schedule " << static_cast<int>(schedule));
                typename ZeroStage<N>::Options const options{.gradient_clipping = 1.0F,
                                                             .reduction = {.schedule = schedule}};
                auto const by_range = state_after<ZeroStage<N>>(
                    [count](auto& engine, std::uint64_t rank) {
                        (void)run_step(engine, rank, 0, count);
                        (void)run_step(engine, rank, 1, count);
                    },
                    options);
                for (bool const is_announced : {false, true}) {
                    auto const by_calls = state_after<ZeroStage<N>>(
                        [=](auto& engine, std::uint64_t rank) {
                            for (std::uint64_t step = 0; step < 2; ++step) {
                                engine.begin_step();
                                for (std::size_t micro_step = 0; micro_step < count; ++micro_step) {
                                    engine.begin_micro_step(is_announced && micro_step + 1 == count
                                                                ? MicroStep::last
                                                                : MicroStep::more);
                                    run_micro_step(engine, rank, step, micro_step);
                                    engine.end_micro_step();
                                }
                                (void)engine.step(0.01);
                            }
                        },
                        options);
                    CHECK((by_calls == by_range));
                }
            }
        }
    });
}

TEST_CASE("Units acquired outside a step hold the weights of the last step, on every rank") {
    in_every_stage([]<int N>() {
        auto const ranks =
            on_ranks<std::vector<float>>(world, [](LoopbackCommunicator& communicator) {
                ZeroStage<N, Sgd> engine(communicator, registration<float>(toy_specs()),
                                         {.optimizer = {.momentum = 0.0}});
                std::vector<float> seen;
                for (int step = 0; step < 3; ++step) {
                    see(seen, engine, 3, 5, 10);
                    see(seen, engine, 4, 0, 299);
                    engine.begin_step();
                    for (auto const micro_step : engine.micro_steps(1)) {
                        for (std::size_t const unit : {4U, 3U, 0U}) {
                            auto const gradients = engine.gradients(unit);
                            gradients[unit == 3 ? 5 : 0][unit == 3 ? 10 : 299] += 1.0F;
                            engine.gradients_ready(unit);
                        }
                    }
                    (void)engine.step(0.25);
                }
                see(seen, engine, 3, 5, 10);
                return seen;
            });
        for (auto const& seen : ranks) {
            REQUIRE(seen.size() == 7);
            CHECK(seen[0] == noise(1, 5, 10));
            CHECK(seen[2] == seen[0] - 0.25F);
            CHECK(seen[4] == seen[2] - 0.25F);
            CHECK(seen[6] == seen[4] - 0.25F);
            CHECK(seen[1] == noise(1, 0, 299));
            CHECK(seen[3] == seen[1] - 0.5F); // from both of its units
        }
    });
}

TEST_CASE("A unit that was prefetched, or left unused in a step, is never stale") {
    in_every_stage([]<int N>() {
        // Every step uses fewer units than the unit order of the step before predicts.
        auto const values =
            on_ranks<std::vector<float>>(world, [](LoopbackCommunicator& communicator) {
                ZeroStage<N, Sgd> engine(communicator, registration<float>(toy_specs()),
                                         {.optimizer = {.momentum = 0.0}});
                std::vector<float> seen;
                auto const step = [&](std::size_t forward_units) {
                    engine.begin_step();
                    for (auto const micro_step : engine.micro_steps(1)) {
                        for (std::size_t unit = 0; unit < forward_units; ++unit) {
                            auto const weights = engine.acquire(unit);
                        }
                        auto const gradients = engine.gradients(3);
                        gradients[5][0] += 1.0F;
                        engine.gradients_ready(3);
                    }
                    (void)engine.step(1.0);
                };
                for (std::size_t const forward_units : {5U, 3U, 0U, 5U, 3U, 1U}) {
                    step(forward_units);
                    see(seen, engine, 3, 5, 0);
                    step(3);
                    see(seen, engine, 3, 5, 0);
                }
                engine.for_each_owned_slice([&](auto const& slice) {
                    if (slice.parameter == 5 && slice.begin == 0) {
                        slice.values[0] = 77.0F;
                    }
                });
                engine.parameters_changed();
                see(seen, engine, 3, 5, 0);
                return seen;
            });
        for (auto const& seen : values) {
            float expected = noise(1, 5, 0);
            for (std::size_t i = 0; i < 12; ++i) {
                expected -= 1.0F;
                CHECK(seen[i] == expected);
            }
            CHECK(seen[12] == 77.0F);
        }
    });
}

TEST_CASE(
    "Groups have their own learning rate and hyper-parameters, which change with the next step") {
    in_every_stage([]<int N>() {
        auto const ranks =
            on_ranks<std::vector<float>>(world, [](LoopbackCommunicator& communicator) {
                ZeroStage<N, Sgd> engine(
                    communicator, registration<float>(toy_specs()),
                    {.groups = {{.optimizer = {.momentum = 0.0}},
                                {.optimizer = {.momentum = 0.0}, .learning_rate_factor = 0.5}}});
                std::vector<float> seen;
                auto const step = [&] {
                    engine.begin_step();
                    for (auto const micro_step : engine.micro_steps(1)) {
                        auto const gradients = engine.gradients(1);
                        gradients[1][0] += 1.0F; // group 0
                        gradients[2][0] += 1.0F; // group 1
                        engine.gradients_ready(1);
                    }
                    (void)engine.step(0.25);
                    auto const weights = engine.acquire(1);
                    seen.push_back(weights[1][0]);
                    seen.push_back(weights[2][0]);
                };
                step();
                engine.set_learning_rate(1, 2.0);
                step();
                engine.set_hyper_parameters(0, {.momentum = 0.5});
                engine.set_learning_rate(0, 0.0);
                step();
                engine.set_learning_rate(0, 1.0);
                step();
                return seen;
            });
        for (auto const& seen : ranks) {
            float const a = noise(1, 1, 0), b = noise(1, 2, 0);
            CHECK(seen[0] == a - 0.25F);
            CHECK(seen[1] == b - 0.125F);
            CHECK(seen[2] == seen[0] - 0.25F);
            CHECK(seen[3] == seen[1] - 0.5F);
            CHECK(seen[4] == seen[2]);
            CHECK(seen[5] == seen[3] - 0.5F);
            // The momentum buffer is 1, 1, then 0.5 * 1 + 1 = 1.5 and 0.5 * 1.5 + 1 = 1.75.
            CHECK(seen[6] == seen[4] - 0.25F * 1.75F);
            CHECK(seen[7] == seen[5] - 0.5F);
        }
    });
}

TEST_CASE("A second micro-step is refused where the options promise one, and the step goes on") {
    in_every_stage([]<int N>() {
        using Stage = ZeroStage<N>;
        typename Stage::Options const promise{.reduction = {.one_micro_step = true}};
        auto const train = [](bool tries) {
            return [tries](auto& engine, std::uint64_t rank) {
                engine.begin_step();
                engine.begin_micro_step();
                run_micro_step(engine, rank, 0, 0);
                engine.end_micro_step();
                if (tries) {
                    auto const outcome =
                        outcome_of([&] { engine.begin_micro_step(MicroStep::last); });
                    if (outcome.type != "OutOfOrder"
                        || outcome.message.find("reduction.one_micro_step says that every step "
                                                "has one micro-step")
                               == std::string::npos) {
                        throw std::logic_error(outcome.type + ": " + outcome.message);
                    }
                }
                (void)engine.step(0.01);
                (void)run_step(engine, rank, 1);
            };
        };
        auto const expected = state_after<Stage>(train(false));
        CHECK(state_after<Stage>(train(true), promise) == expected);
    });
}

} // namespace zero::test::protocol_test
