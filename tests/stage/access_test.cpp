#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/snapshot.hpp"
#include "support/stages.hpp"

#include <zero/layout/bucketer.hpp>
#include <zero/layout/size_capped_bucketer.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/stage/zero_stage.hpp>

#include <map>
#include <string>
#include <utility>
#include <vector>

// Parameters and optimizer states are read and changed between steps.

namespace zero::test::access_test {

namespace {

constexpr int world = 3;
using Values = std::vector<std::vector<float>>;

Values initial_values() {
    Values values;
    auto const specs = toy_specs();
    for (std::size_t parameter = 0; parameter < specs.size(); ++parameter) {
        values.emplace_back();
        for (std::size_t i = 0; i < specs[parameter].elements; ++i) {
            values.back().push_back(noise(1, parameter, i));
        }
    }
    return values;
}

} // namespace

TEST_CASE("A visit of all full parameters comes in registration order on every rank") {
    in_every_stage([]<int N>() {
        struct Seen {
            std::vector<std::size_t> order;
            Values values;
        };
        auto const ranks = on_ranks<Seen>(world, [](LoopbackCommunicator& communicator) {
            ZeroStage<N> engine(communicator, registration<float>(toy_specs()));
            Seen seen;
            engine.for_each_full_parameter(
                [&](std::size_t parameter, std::span<float const> values) {
                    seen.order.push_back(parameter);
                    seen.values.emplace_back(values.begin(), values.end());
                });
            return seen;
        });
        for (Seen const& seen : ranks) {
            CHECK(seen.order == std::vector<std::size_t>{0, 1, 2, 3, 4, 5, 6, 7});
            CHECK((seen.values == initial_values()));
        }
    });
}

TEST_CASE("A visit of all owned slices has each trainable element once over all ranks, and in "
          "stage 0 once on each rank") {
    in_every_stage([]<int N>() {
        using Count = std::map<std::pair<std::size_t, std::size_t>, int>;
        auto const ranks = on_ranks<Count>(world, [](LoopbackCommunicator& communicator) {
            ZeroStage<N, Parameters<bfloat16>> engine(communicator,
                                                      registration<bfloat16>(toy_specs()));
            Count count;
            engine.for_each_owned_slice([&](auto const& slice) {
                for (std::size_t i = 0; i < slice.values.size(); ++i) {
                    bool const is_right =
                        to_float(slice.values[i])
                            == to_float(
                                from_float<bfloat16>(noise(1, slice.parameter, slice.begin + i)))
                        && slice.master[i] == to_float(slice.values[i])
                        && slice.states[0][i] == 0.0F && slice.states[1][i] == 0.0F;
                    count[{slice.parameter, slice.begin + i}] += is_right ? 1 : 1000;
                }
            });
            return count;
        });
        Count sum;
        for (Count const& count : ranks) {
            for (auto const& [element, times] : count) {
                sum[element] += times;
            }
        }
        CHECK(sum.size() == 300 + 500 + 7 + 129 + 64 + 0 + 1);
        for (auto const& [element, times] : sum) {
            CHECK(times == (N == 0 ? world : 1));
        }
    });
}

TEST_CASE(
    "Weights changed through owned slices reach every rank, and the next step starts from them") {
    in_every_stage([]<int N>() {
        struct Seen {
            Values changed;
            std::vector<std::uint32_t> after_step;
            bool masters_follow = true;
        };
        auto const run = [](bool says_so) {
            return on_ranks<Seen>(world, [says_so](LoopbackCommunicator& communicator) {
                ZeroStage<N, Parameters<bfloat16>> engine(communicator,
                                                          registration<bfloat16>(toy_specs()));
                engine.for_each_owned_slice([](auto const& slice) {
                    for (std::size_t i = 0; i < slice.values.size(); ++i) {
                        slice.values[i] = from_float<bfloat16>(
                            static_cast<float>(slice.parameter * 100 + (slice.begin + i) % 7));
                    }
                });
                Seen seen;
                if (says_so) {
                    engine.parameters_changed();
                }
                engine.for_each_owned_slice([&](auto const& slice) {
                    for (std::size_t i = 0; i < slice.values.size(); ++i) {
                        seen.masters_follow =
                            seen.masters_follow && slice.master[i] == to_float(slice.values[i]);
                    }
                });
                seen.changed = full_parameters(engine);
                (void)run_step(engine, static_cast<std::uint64_t>(communicator.rank()), 0);
                seen.after_step = snapshot(engine);
                return seen;
            });
        };
        for (Seen const& seen : run(true)) {
            CHECK(seen.masters_follow);
            for (std::size_t parameter = 0; parameter < seen.changed.size(); ++parameter) {
                for (std::size_t i = 0; i < seen.changed[parameter].size() && parameter != 4; ++i) {
                    CHECK(seen.changed[parameter][i]
                          == to_float(
                              from_float<bfloat16>(static_cast<float>(parameter * 100 + i % 7))));
                }
            }
            CHECK(seen.changed[4][0] == to_float(from_float<bfloat16>(noise(1, 4, 0)))); // frozen
        }
        auto const unsaid = run(false);
        CHECK_FALSE(unsaid[0].masters_follow);
        CHECK(unsaid[0].after_step != run(true)[0].after_step);
    });
}

TEST_CASE("Weights loaded into the caller's memory on rank 0 reach every rank's memory and master "
          "weights") {
    struct Seen {
        std::vector<float> memory;
        bool masters_follow = true;
    };
    auto const load = []<int N>(Storage storage) {
        return on_ranks<Seen>(world, [storage](LoopbackCommunicator& communicator) {
            std::vector<bfloat16> block(700, from_float<bfloat16>(1.0F));
            std::vector<Parameter<bfloat16>> const parameters{
                {.name = "a", .data = block.data() + 3, .elements = 500},
                {.name = "b", .data = block.data() + 510, .elements = 33, .trainable = false},
                {.name = "c", .data = block.data() + 543, .elements = 100}};
            typename ZeroStage<N, Parameters<bfloat16>>::Options options{.storage = storage};
            if (storage == Storage::adopted) {
                options.adopted_block = block;
            }
            ZeroStage<N, Parameters<bfloat16>> engine(communicator, parameters, options);
            for (auto const& parameter : parameters) {
                for (std::size_t i = 0; i < parameter.elements; ++i) {
                    parameter.data[i] = from_float<bfloat16>(
                        communicator.rank() == 0 ? static_cast<float>(i % 100) : -1.0F);
                }
            }
            engine.parameters_changed();
            Seen seen;
            engine.for_each_owned_slice([&](auto const& slice) {
                for (std::size_t i = 0; i < slice.master.size(); ++i) {
                    seen.masters_follow =
                        seen.masters_follow
                        && slice.master[i] == static_cast<float>((slice.begin + i) % 100);
                }
            });
            for (auto const& parameter : parameters) {
                for (std::size_t i = 0; i < parameter.elements; ++i) {
                    seen.memory.push_back(to_float(parameter.data[i])
                                          - static_cast<float>(i % 100));
                }
            }
            return seen;
        });
    };
    for (auto const storage : {Storage::adopted, Storage::scattered}) {
        for (auto const& ranks : {load.operator()<0>(storage), load.operator()<1>(storage),
                                  load.operator()<2>(storage)}) {
            for (Seen const& seen : ranks) {
                CHECK((seen.memory == std::vector<float>(633, 0.0F)));
                CHECK(seen.masters_follow);
            }
        }
    }
}

TEST_CASE("A refused acquisition leaves no stale weights for a later one") {
    auto const ranks = on_ranks<std::vector<float>>(2, [](LoopbackCommunicator& communicator) {
        using Stage = ZeroStage<3, Sgd, UnitBucketer>;
        std::vector<typename Stage::Registration> const parameters{
            {.name = "a", .elements = 64, .units = {0}},
            {.name = "a and b", .elements = 64, .units = {0, 1}},
            {.name = "b and c", .elements = 64, .units = {1, 2}},
            {.name = "c", .elements = 64, .units = {2}},
            {.name = "d", .elements = 64, .units = {3}},
            {.name = "e", .elements = 64, .units = {4}}};
        typename Stage::Options options;
        options.optimizer.momentum = 0;
        Stage engine(communicator, parameters, options);
        auto const step = [&](auto const& forward) {
            engine.begin_step();
            engine.begin_micro_step(MicroStep::last);
            forward();
            for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
                auto const gradients = engine.gradients(unit);
                for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
                    for (float& element : gradients[parameter]) {
                        element += engine.layout().parameter(parameter).units.front() == unit
                                       ? 1.0F
                                       : 0.0F;
                    }
                }
                engine.gradients_ready(unit);
            }
            engine.end_micro_step();
            (void)engine.step(1.0);
        };
        auto const in_order = [&] {
            for (std::size_t const unit : {3U, 0U, 1U, 2U, 4U}) {
                (void)engine.acquire(unit);
            }
        };
        step(in_order);
        step(in_order);
        bool is_refused = false;
        step([&] {
            auto const third = engine.acquire(3);
            auto const first = engine.acquire(0);
            // Unit 1 shares a parameter that was prefetched.
            is_refused = outcome_of([&] { (void)engine.acquire(2); }).type == "OutOfOrder";
        });
        std::vector<float> values{is_refused ? 1.0F : 0.0F};
        engine.for_each_full_parameter(
            [&](std::size_t, std::span<float const> full) { values.push_back(full[5]); });
        return values;
    });
    for (auto const& values : ranks) {
        CHECK((values == std::vector<float>{1.0F, -3.0F, -3.0F, -3.0F, -3.0F, -3.0F, -3.0F}));
    }
}

TEST_CASE(
    "A handle counts in at() the parameters of its unit, and names the unit if it has fewer") {
    auto const messages = on_ranks<std::vector<std::string>>(1, [](LoopbackCommunicator& ranks) {
        using Stage = ZeroStage<3, Sgd>;
        Stage engine(ranks, {{.name = "a", .elements = 3, .units = {1}},
                             {.name = "b", .elements = 4, .units = {0}},
                             {.name = "c", .elements = 5, .units = {0, 1}}});
        std::vector<std::string> seen;
        auto const note = [&](auto const& call) {
            try {
                call();
            } catch (InvalidArgument const& error) {
                seen.emplace_back(error.what());
            } catch (Released const& error) {
                seen.emplace_back(error.what());
            }
        };
        engine.begin_step();
        engine.begin_micro_step(MicroStep::last);
        auto weights = engine.acquire(1);
        auto const gradients = engine.gradients(1);
        for (auto const size : {weights.at(0).size(), weights.at(1).size(), gradients.at(0).size(),
                                gradients.at(1).size()}) {
            seen.push_back(std::to_string(size));
        }
        gradients.at(1)[4] = 2.0F;
        seen.push_back(gradients[2][4] == 2.0F ? "same" : "other");
        seen.push_back(weights.at(1).data() == weights[2].data() ? "same" : "other");
        note([&] { (void)weights.at(2); });
        note([&] { (void)gradients.template at<float>(7); });
        weights.release();
        note([&] { (void)weights.at(0); });
        engine.cancel_step();
        return seen;
    });
    std::string const rest = " of unit 1, which has 2 parameters (rank 0); at() counts the "
                             "parameters of the unit from 0, in order of registration. operator[] "
                             "takes registration indices.";
    CHECK(messages.front()
          == std::vector<std::string>{
              "3", "5", "3", "5", "same", "same", "zero: at(2)" + rest, "zero: at(7)" + rest,
              "zero: the weights of unit 1 were released; acquire the unit again."});
}

} // namespace zero::test::access_test
