#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"
#include "support/temporary_folder.hpp"
#include "support/tiled_model.hpp"
#include "support/toy_model.hpp"

#include <zero/checkpoint/checkpoint.hpp>
#include <zero/ops/adam.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/stage/training_state.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

// Each parameter's number of updates in checkpoints: bias correction counts the updates of the
// moments that it corrects.

namespace zero::test::update_counts_test {

namespace {

constexpr int world = 2;
constexpr double rate = 1e-3;

std::vector<Parameter<float>> two_parameters(bool is_second_frozen) {
    Parameter<float> first{.name = "first", .elements = 70, .units = {0}};
    Parameter<float> second{.name = "second", .elements = 90, .units = {1}};
    second.trainable = !is_second_frozen;
    return {first, second};
}

/// A step in which every gradient is 1.
template <class Engine>
void step(Engine& engine, std::vector<std::size_t> const& units) {
    engine.begin_step();
    engine.begin_micro_step(MicroStep::last);
    for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
        auto const weights = engine.acquire(unit);
        for (std::size_t const used : units) {
            if (used == unit) {
                auto const gradients = engine.gradients(unit);
                for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
                    for (float& gradient : gradients[parameter]) {
                        gradient += 1.0F;
                    }
                }
            }
        }
        engine.gradients_ready(unit);
    }
    engine.end_micro_step();
    engine.step(rate);
}

template <class Stage>
Stage engine_of(LoopbackCommunicator& communicator, bool is_second_frozen,
                typename Stage::Options options = {}) {
    options.optimizer.weight_decay = 0.0;
    return Stage(communicator, two_parameters(is_second_frozen), options);
}

struct Unfrozen {
    double moved = 0.0; ///< of the parameter, in learning rates
    std::vector<std::string> differences;
    std::vector<std::string> without_states;
    std::vector<std::uint64_t> updates; ///< after the load, then after the steps
};

/// Loads a checkpoint of 10,000 steps in which the second parameter was frozen, and trains it.
template <class Saves, class Loads>
Unfrozen unfreeze(std::filesystem::path const& folder) {
    run_ranks(world, [&](LoopbackCommunicator& communicator) {
        auto engine = engine_of<Saves>(communicator, true);
        step(engine, {0});
        engine.set_step_count(10000);
        save_checkpoint(engine, folder);
    });
    return on_ranks<Unfrozen>(world, [&](LoopbackCommunicator& communicator) {
        auto engine = engine_of<Loads>(communicator, false);
        auto const report = load_checkpoint(engine, folder, {.may_thaw = true});
        Unfrozen seen{0.0, report.differences, report.without_states, {}};
        TrainingState state(engine);
        auto const note = [&] {
            seen.updates.push_back(state.updates(0));
            seen.updates.push_back(state.updates(1));
        };
        note();
        for (int i = 0; i < 30; ++i) {
            step(engine, {0, 1});
        }
        note();
        seen.moved = static_cast<double>(state.full_fp32_parameter(1)[5]) / -rate;
        return seen;
    })[1];
}

} // namespace

TEST_CASE("A parameter that is unfrozen at a resume moves like a new one, and is listed") {
    in_every_stage([]<int N>() {
        TemporaryFolder const folder;
        auto const seen = unfreeze<ZeroStage<2>, ZeroStage<N>>(folder / "");
        CHECK(seen.moved > 29.5);
        CHECK(seen.moved < 30.5);
        CHECK(seen.differences
              == std::vector<std::string>{
                  "the checkpoint has no state 'exp_avg' of parameter 'second', which was frozen "
                  "(LoadOptions::may_thaw)",
                  "the checkpoint has no state 'exp_avg_sq' of parameter 'second', which was "
                  "frozen (LoadOptions::may_thaw)"});
        CHECK(seen.without_states == std::vector<std::string>{"second"});
        CHECK(seen.updates == std::vector<std::uint64_t>{10000, 0, 10030, 30});
    });
}

TEST_CASE("The option may_thaw accepts no parameter that the checkpoint lacks, and may_regroup "
          "none that was "
          "frozen") {
    TemporaryFolder const folder;
    auto const messages =
        on_ranks<std::vector<std::string>>(1, [&](LoopbackCommunicator& communicator) {
            auto old = engine_of<ZeroStage<2>>(communicator, true);
            save_checkpoint(old, folder / "");
            auto thawed = engine_of<ZeroStage<2>>(communicator, false);
            auto const refusal = [&](auto& engine, LoadOptions const& options) {
                return outcome_of([&] { load_checkpoint(engine, folder / "", options); }).message;
            };
            auto parameters = two_parameters(false);
            parameters.push_back({.name = "third", .elements = 10});
            ZeroStage<2> larger(communicator, parameters);
            return std::vector<std::string>{
                refusal(thawed, {}), refusal(thawed, {.may_regroup = true}),
                refusal(larger, {.may_thaw = true}), refusal(larger, {.may_differ = true})};
        })[0];
    CHECK_THAT(messages[0], contains_text("LoadOptions::may_thaw"));
    CHECK_THAT(messages[1], contains_text("LoadOptions::may_thaw"));
    CHECK_THAT(messages[2], contains_text("has no parameter 'third'"));
    CHECK(messages[2].find("second") == std::string::npos);
    CHECK(messages[3].empty());
}

TEST_CASE("With another optimizer every parameter counts its updates anew") {
    TemporaryFolder const folder;
    auto const moved = on_ranks<std::vector<double>>(1, [&](LoopbackCommunicator& communicator) {
        {
            ZeroStage<1, Sgd> engine(communicator, two_parameters(false));
            step(engine, {0, 1});
            engine.set_step_count(10000);
            save_checkpoint(engine, folder / "");
        }
        auto engine = engine_of<ZeroStage<1, Adam>>(communicator, false);
        auto const report = load_checkpoint(engine, folder / "", {.may_differ = true});
        TrainingState state(engine);
        double const before = static_cast<double>(state.full_fp32_parameter(0)[0]);
        for (int i = 0; i < 30; ++i) {
            step(engine, {0, 1});
        }
        double const after = static_cast<double>(state.full_fp32_parameter(0)[0]);
        return std::vector<double>{(before - after) / rate,
                                   static_cast<double>(report.without_states.size()),
                                   static_cast<double>(engine.step_count())};
    })[0];
    CHECK(std::abs(moved[0] - 30.0) < 0.5);
    CHECK(moved[1] == 2);
    CHECK(moved[2] == 10030);
}

TEST_CASE("A strict load that freezes a parameter lists the states that it drops") {
    TemporaryFolder const folder;
    run_ranks(1, [&](LoopbackCommunicator& communicator) {
        auto engine = engine_of<ZeroStage<2>>(communicator, false);
        step(engine, {0, 1});
        save_checkpoint(engine, folder / "");
    });
    std::vector<std::string> differences;
    std::vector<std::string> of_weights;
    run_ranks(1, [&](LoopbackCommunicator& communicator) {
        auto engine = engine_of<ZeroStage<2>>(communicator, true);
        differences = load_checkpoint(engine, folder / "").differences;
        of_weights =
            load_checkpoint(engine, folder / "", {.scope = LoadScope::weights}).differences;
    });
    CHECK(differences
          == std::vector<std::string>{"parameter 'second' is frozen, so its states 'exp_avg', "
                                      "'exp_avg_sq' of the checkpoint are dropped"});
    CHECK(of_weights.empty());
}

TEST_CASE("Numbers of updates survive a checkpoint; one without them has the number of steps") {
    in_every_stage([]<int N>() {
        TemporaryFolder const folder;
        using Stage = ZeroStage<N>;
        typename Stage::Options leave;
        leave.unused_parameters = UnusedParameters::leave;
        auto const steps_of = [](std::uint64_t i) {
            return i % 3 == 0 ? std::vector<std::size_t>{0, 1} : std::vector<std::size_t>{i % 2};
        };
        auto const seen = [&](auto& engine) {
            TrainingState state(engine);
            auto values = state.full_fp32_parameter(0);
            auto const second = state.full_fp32_parameter(1);
            values.insert(values.end(), second.begin(), second.end());
            values.push_back(static_cast<float>(state.updates(0)));
            values.push_back(static_cast<float>(state.updates(1)));
            return values;
        };
        auto const whole = on_ranks<std::vector<float>>(3, [&](LoopbackCommunicator& communicator) {
            auto engine = engine_of<Stage>(communicator, false, leave);
            for (std::uint64_t i = 0; i < 9; ++i) {
                step(engine, steps_of(i));
            }
            return seen(engine);
        });
        CHECK(whole[0].back() == 6.0F); // of 9
        CHECK(whole[0][whole[0].size() - 2] == 6.0F);
        run_ranks(3, [&](LoopbackCommunicator& communicator) {
            auto engine = engine_of<Stage>(communicator, false, leave);
            for (std::uint64_t i = 0; i < 5; ++i) {
                step(engine, steps_of(i));
            }
            save_checkpoint(engine, folder / "");
        });
        auto const resumed =
            on_ranks<std::vector<float>>(2, [&](LoopbackCommunicator& communicator) {
                auto engine = engine_of<Stage>(communicator, false, leave);
                step(engine, {1}); // the load replaces this
                load_checkpoint(engine, folder / "");
                for (std::uint64_t i = 5; i < 9; ++i) {
                    step(engine, steps_of(i));
                }
                return seen(engine);
            });
        CHECK(resumed[0] == whole[0]);
        auto const manifest = Manifest::read(folder / "step-00000005");
        CHECK(manifest.scalars.counts.at("updates.first") == 4);
        CHECK(manifest.scalars.counts.at("updates.second") == 3);
    });
}

TEST_CASE(
    "Tiles that are loaded in other tiles have the number of updates of their first element") {
    TemporaryFolder const folder;
    auto const make = [](LoopbackCommunicator& communicator, std::size_t count) {
        Parameter<float> weight{.name = "weight", .elements = 120, .units = {0}};
        weight.shape = {12, 10};
        ZeroStage<3>::Options options;
        options.unused_parameters = UnusedParameters::leave;
        return ZeroStage<3>(communicator, tiles(weight, count), options);
    };
    run_ranks(2, [&](LoopbackCommunicator& communicator) {
        auto engine = make(communicator, 3);
        step(engine, {0, 1, 2});
        step(engine, {0, 2});
        step(engine, {0});
        save_checkpoint(engine, folder / "");
    });
    std::vector<std::uint64_t> updates;
    run_ranks(1, [&](LoopbackCommunicator& communicator) {
        auto engine = make(communicator, 4); // begin at rows 0, 3, 6 and 9 of 0, 4 and 8
        load_checkpoint(engine, folder / "");
        for (std::size_t tile = 0; tile < 4; ++tile) {
            updates.push_back(TrainingState(engine).updates(tile));
        }
    });
    CHECK(updates == std::vector<std::uint64_t>{3, 3, 1, 2});
}

} // namespace zero::test::update_counts_test
