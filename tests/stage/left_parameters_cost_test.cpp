#include "support/account.hpp"
#include "support/caller_memory.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/recording.hpp>
#include <zero/core/host_memory_resource.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/stage/training_state.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// What UnusedParameters::leave costs, and its meeting with other features.

namespace zero::test::left_parameters_cost_test {

namespace {

constexpr int world = 3;

/// A step in which rank 1 alone reports gradients of 1, of the listed units.
template <class Engine>
void backward(Engine& engine, int rank, std::vector<std::size_t> const& units) {
    engine.begin_step();
    engine.begin_micro_step(MicroStep::last);
    for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
        auto const weights = engine.acquire(unit);
        for (std::size_t const used : units) {
            if (used == unit && rank == 1) {
                auto const gradients = engine.gradients(unit);
                for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
                    for (auto& gradient : gradients[parameter]) {
                        gradient = 1.0F;
                    }
                }
            }
        }
        engine.gradients_ready(unit);
    }
    engine.end_micro_step();
}

template <class Options>
Options leaving(Options options = {}) {
    options.unused_parameters = UnusedParameters::leave;
    return options;
}

struct Cost {
    std::size_t collectives = 0; ///< of one step
    std::size_t control = 0;     ///< planned bytes of tables and scalars
    bool is_planned = false;     ///< everything allocated is in the plan
};

template <int N>
Cost cost_of(UnusedParameters unused, NonFinite non_finite) {
    return on_ranks<Cost>(world, [&](LoopbackCommunicator& transport) {
        Recording<LoopbackCommunicator> communicator(transport);
        using Stage = ZeroStage<N, Recording<LoopbackCommunicator>>;
        HostMemoryResource memory;
        Stage engine(communicator, registration<float>(toy_specs()),
                     {.non_finite = non_finite, .unused_parameters = unused, .memory = &memory});
        Cost cost;
        communicator.reset_recorded();
        backward(engine, transport.rank(), {0, 1, 2, 3, 4});
        engine.step(0.1);
        for (auto const& kind : communicator.recorded().kinds) {
            cost.collectives += kind.calls;
        }
        auto const plan = engine.memory_plan();
        cost.control = plan[BufferKind::control].bytes();
        cost.is_planned = planned_bytes(plan) == allocated_bytes(memory);
        return cost;
    })[0];
}

} // namespace

TEST_CASE("Leaving parameters costs no collective, and only planned memory") {
    in_every_stage([]<int N>() {
        for (NonFinite const non_finite : {NonFinite::skip, NonFinite::step}) {
            Cost const zero = cost_of<N>(UnusedParameters::zero, non_finite);
            Cost const leave = cost_of<N>(UnusedParameters::leave, non_finite);
            CHECK(leave.collectives == zero.collectives);
            CHECK(zero.is_planned);
            CHECK(leave.is_planned);
            // A row, a count and an integer for each of 8 parameters, and the exchanged integers.
            using Group = ::zero::detail::GroupState<AdamW>;
            std::size_t const integers = ::zero::detail::ReportedFigures::size_for(0, 8);
            CHECK(leave.control - zero.control
                  == 8 * (sizeof(Group) + sizeof(::zero::detail::UpdateCount)) + 8 * integers);
        }
    });
}

TEST_CASE("Parameters without gradients keep what momentum and decay would move") {
    in_every_stage([]<int N>() {
        auto const moved =
            on_ranks<std::vector<float>>(world, [](LoopbackCommunicator& communicator) {
                std::vector<float> values;
                for (auto const unused : {UnusedParameters::zero, UnusedParameters::leave}) {
                    ZeroStage<N> engine(communicator, registration<float>(toy_specs()),
                                        {.unused_parameters = unused});
                    TrainingState state(engine);
                    values.push_back(state.full_fp32_parameter(3)[5]);
                    for (int step = 0; step < 10; ++step) {
                        backward(engine, communicator.rank(),
                                 step < 5 ? std::vector<std::size_t>{1, 2}
                                          : std::vector<std::size_t>{1});
                        engine.step(0.01);
                        if (step % 5 == 4) {
                            values.push_back(state.full_fp32_parameter(3)[5]);
                        }
                    }
                }
                return values;
            })[2];
        float const first = moved[1] - moved[0];
        CHECK(moved[2] - moved[1] < 0.5F * first); // both negative
        CHECK(moved[4] == moved[1]);
        CHECK(moved[5] == moved[4]);
    });
}

TEST_CASE("Gradients in the caller's memory count when their unit is reported, in any storage") {
    for (Storage const storage : {Storage::adopted, Storage::scattered}) {
        auto const updates =
            on_ranks<std::vector<std::uint64_t>>(world, [&](LoopbackCommunicator& communicator) {
                auto parameters = registration<float>(toy_specs());
                CallerMemory<float, float> caller(parameters);
                auto options = leaving<ZeroStage<2>::Options>();
                options.storage = storage;
                if (storage == Storage::adopted) {
                    options.adopted_block = caller.block;
                }
                ZeroStage<2> engine(communicator, parameters, options);
                for (int step = 0; step < 4; ++step) {
                    engine.begin_step();
                    engine.begin_micro_step(MicroStep::last);
                    for (std::size_t unit = 5; unit-- > 0;) {
                        if (communicator.rank() == 0 && unit <= static_cast<std::size_t>(step)) {
                            (void)engine.gradients(unit);
                            parameters[engine.layout().unit_parameters(unit)[0]].gradient.get()[0] =
                                1.0F;
                            engine.gradients_ready(unit);
                        }
                    }
                    engine.end_micro_step();
                    engine.step(0.1);
                }
                std::vector<std::uint64_t> counts;
                TrainingState state(engine);
                for (std::size_t const parameter : {0U, 1U, 2U, 3U, 5U, 7U}) {
                    counts.push_back(state.updates(parameter));
                }
                return counts;
            });
        for (auto const& rank : updates) {
            CHECK(rank == std::vector<std::uint64_t>{4, 3, 3, 2, 1, 0});
        }
    }
}

TEST_CASE("A caller-defined update is not called for a parameter that is left, and learns the "
          "number of each update") {
    using Calls = std::vector<std::vector<std::uint64_t>>; // by parameter
    auto const calls = on_ranks<Calls>(1, [](LoopbackCommunicator& communicator) {
        Calls seen(toy_specs().size());
        ZeroStage<2> engine(communicator, registration<float>(toy_specs()),
                            leaving<ZeroStage<2>::Options>());
        ZeroStage<2> plain(communicator, registration<float>(toy_specs()));
        std::uint64_t plain_number = 0;
        for (std::vector<std::size_t> const& units :
             {std::vector<std::size_t>{1, 2}, {2}, {1, 3}, {1, 2}}) {
            backward(engine, 1, units);
            engine.step(0.1, [&](auto const& slice) {
                seen[slice.parameter].push_back(slice.update);
                CHECK(slice.group == toy_specs()[slice.parameter].group);
            });
            backward(plain, 1, units);
            plain.step(0.1, [&](auto const& slice) { plain_number = slice.update; });
        }
        CHECK(plain_number == 4);
        return seen;
    })[0];
    CHECK(calls[1] == std::vector<std::uint64_t>{1, 2, 3});
    CHECK(calls[3] == std::vector<std::uint64_t>{1, 2, 3});
    CHECK(calls[5] == std::vector<std::uint64_t>{1});
    CHECK(calls[0].empty());
}

TEST_CASE("Ranks that set other numbers of updates get a CollectiveMismatch") {
    auto const outcomes = run_and_observe(2, [](LoopbackCommunicator& communicator) {
        ZeroStage<1> engine(communicator, registration<float>(toy_specs()));
        TrainingState(engine).set_updates(1, communicator.rank() == 0 ? 0 : 7);
        backward(engine, 1, {1});
        engine.step(0.1);
        (void)engine.step_count();
    });
    for (auto const& rank : outcomes.ranks) {
        CHECK(rank.type == "CollectiveMismatch");
    }
    auto const frozen = run_and_observe(1, [](LoopbackCommunicator& communicator) {
        ZeroStage<1> engine(communicator, registration<float>(toy_specs()));
        (void)TrainingState(engine).updates(4);
    });
    CHECK(frozen.ranks[0].type == "InvalidArgument");
    CHECK_THAT(frozen.ranks[0].message,
               contains_text("'second.table' is frozen and has no update"));
}

TEST_CASE("A number of updates that is set corrects the bias, and the number of steps sets all") {
    auto const values = on_ranks<std::vector<float>>(2, [](LoopbackCommunicator& communicator) {
        std::vector<float> result;
        for (bool const is_set : {false, true}) {
            ZeroStage<2> engine(communicator, registration<float>(toy_specs()));
            TrainingState state(engine);
            engine.set_step_count(is_set ? 500 : 0);
            if (is_set) {
                state.set_updates(3, 0);
                result.push_back(static_cast<float>(state.updates(1)));
            }
            backward(engine, communicator.rank(), {2});
            engine.step(0.01);
            result.push_back(state.full_fp32_parameter(3)[7]);
            engine.set_step_count(9);
            result.push_back(static_cast<float>(state.updates(3)));
        }
        return result;
    })[0];
    CHECK(values[2] == 500.0F);
    CHECK(values[3] == values[0]);
    CHECK(values[1] == 9.0F);
    CHECK(values[4] == 9.0F);
}

TEST_CASE("A gradient that is set counts, and one that is said to be unused does not") {
    auto const updates =
        on_ranks<std::vector<std::uint64_t>>(2, [](LoopbackCommunicator& communicator) {
            ZeroStage<2> engine(communicator, registration<float>(toy_specs()),
                                leaving<ZeroStage<2>::Options>());
            TrainingState state(engine);
            backward(engine, communicator.rank(), {1});
            state.set_full_gradient(3, std::vector<float>(129, 0.5F));
            engine.step(0.1);
            engine.begin_step();
            engine.begin_micro_step();
            engine.gradients(2)[3][0] = 0.0F;
            (void)engine.gradients(1)[1];
            engine.note_unused(2, 3);
            engine.end_micro_step();
            engine.step(0.1);
            return std::vector<std::uint64_t>{state.updates(1), state.updates(3)};
        });
    CHECK(updates[0] == std::vector<std::uint64_t>{2, 1});
    CHECK(updates[1] == updates[0]);
}

TEST_CASE("Each of many parameters is left or updated by itself") {
    std::vector<ParameterSpec> specs;
    for (std::size_t parameter = 0; parameter < 1500; ++parameter) {
        specs.push_back({"p" + std::to_string(parameter), 1 + parameter % 3, {0}, 0, true});
    }
    auto const is_used = [](std::size_t parameter, std::size_t rank) {
        return parameter % 704 < 3 ? parameter % 2 == rank : parameter == 63 || parameter == 1499;
    };
    auto const wrong = on_ranks<int>(2, [&](LoopbackCommunicator& communicator) {
        ZeroStage<1> engine(communicator, registration<float>(specs),
                            leaving<ZeroStage<1>::Options>());
        engine.begin_step();
        engine.begin_micro_step();
        auto const gradients = engine.gradients(0);
        for (std::size_t parameter = 0; parameter < specs.size(); ++parameter) {
            if (is_used(parameter, static_cast<std::size_t>(communicator.rank()))) {
                gradients[parameter][0] = 1.0F;
            }
        }
        engine.gradients_ready(0);
        engine.end_micro_step();
        engine.step(0.1);
        int count = 0;
        auto const values = full_parameters(engine);
        for (std::size_t parameter = 0; parameter < specs.size(); ++parameter) {
            bool const has_moved = values[parameter][0] != noise(1, parameter, 0);
            count += has_moved != (is_used(parameter, 0) || is_used(parameter, 1));
        }
        return count;
    });
    CHECK(wrong == std::vector<int>{0, 0});
}

TEST_CASE("A step without any gradient is still an error") {
    auto const outcomes = run_and_observe(2, [](LoopbackCommunicator& communicator) {
        ZeroStage<2> engine(communicator, registration<float>(toy_specs()),
                            leaving<ZeroStage<2>::Options>());
        backward(engine, 0, {});
        engine.step(0.1);
    });
    for (auto const& rank : outcomes.ranks) {
        CHECK(rank.type == "NoGradients");
    }
}

} // namespace zero::test::left_parameters_cost_test
