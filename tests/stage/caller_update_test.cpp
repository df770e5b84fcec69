#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/snapshot.hpp"
#include "support/stages.hpp"

#include <zero/comm/run_ranks.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/stage/zero_stage.hpp>

#include <stdexcept>
#include <type_traits>
#include <vector>

// `step` with a callback that updates the slices this rank owns.

namespace zero::test::caller_update_test {

namespace {

constexpr int world = 3;

/// The update of `Sgd`, as a caller writes it.
template <class Slice>
void momentum_update(Slice const& slice) {
    auto const rate = static_cast<float>(-slice.learning_rate);
    for (std::size_t i = 0; i < slice.gradient.size(); ++i) {
        float const gradient = to_float(slice.gradient[i]) * slice.factor;
        float& momentum = slice.states[0][i];
        momentum = ops::fma(0.9F, momentum, gradient);
        slice.weights()[i] = ops::fma(rate, momentum, slice.weights()[i]);
    }
}

template <class Engine>
void forward_and_backward(Engine& engine, std::uint64_t rank, std::uint64_t step) {
    engine.begin_step();
    for (auto const micro_step : engine.micro_steps(2)) {
        run_micro_step(engine, rank, step, micro_step);
    }
}

template <class Stage>
std::vector<std::vector<std::uint32_t>> train(bool is_callers) {
    return on_ranks<std::vector<std::uint32_t>>(world, [&](LoopbackCommunicator& communicator) {
        auto const rank = static_cast<std::uint64_t>(communicator.rank());
        Stage engine(communicator, registration<typename Stage::ParameterType>(toy_specs()),
                     {.gradient_clipping = 0.5F});
        for (std::uint64_t step = 0; step < 3; ++step) {
            forward_and_backward(engine, rank, step);
            if (is_callers) {
                engine.step(0.05, [](auto const& slice) { momentum_update(slice); });
            } else {
                engine.step(0.05);
            }
        }
        return snapshot(engine);
    });
}

template <class Slice>
constexpr bool has_constant_values =
    std::is_const_v<typename decltype(Slice::values)::element_type>;

template <class... Policies>
void check_values(bool is_constant) {
    int calls = 0;
    run_ranks(1, [&](LoopbackCommunicator& communicator) {
        using Stage = ZeroStage<2, Policies...>;
        Stage engine(communicator, registration<typename Stage::ParameterType>(toy_specs()));
        forward_and_backward(engine, 0, 0);
        engine.step(0.05, [&]<class Slice>(Slice const&) {
            CHECK(has_constant_values<Slice> == is_constant);
            ++calls;
        });
        engine.for_each_owned_slice(
            []<class Slice>(Slice const&) { CHECK_FALSE(has_constant_values<Slice>); });
    });
    CHECK(calls != 0);
}

} // namespace

TEST_CASE("An update must not write values that are rounded from master weights") {
    check_values<Parameters<bfloat16>>(true);
    check_values<Parameters<bfloat16>, NoMasterWeights>(false);
    check_values<>(false);
}

TEST_CASE("A caller-written momentum update gives the bits of Sgd, in every stage") {
    in_every_stage([]<int N>() {
        CHECK((train<ZeroStage<N, Sgd>>(true) == train<ZeroStage<N, Sgd>>(false)));
        using Half = ZeroStage<N, Sgd, Parameters<bfloat16>, RoundRobinPartitioner>;
        CHECK((train<Half>(true) == train<Half>(false)));
    });
}

TEST_CASE("A skipped step does not call the update callback and changes no bit") {
    auto const seen = on_ranks<std::vector<int>>(world, [](LoopbackCommunicator& communicator) {
        ZeroStage<2, Sgd> engine(communicator, registration<float>(toy_specs()));
        auto const before = snapshot(engine);
        engine.begin_step();
        engine.begin_micro_step(MicroStep::last);
        auto const gradients = engine.gradients(1);
        gradients[1][3] = communicator.rank() == 1 ? std::numeric_limits<float>::infinity() : 1.0F;
        engine.gradients_ready(1);
        engine.end_micro_step();
        int calls = 0;
        bool const is_skipped = engine.step(0.1, [&](auto const&) { ++calls; }).report().is_skipped;
        return std::vector<int>{calls, is_skipped ? 1 : 0, snapshot(engine) == before ? 1 : 0};
    });
    for (auto const& rank : seen) {
        CHECK(rank == std::vector<int>{0, 1, 1});
    }
}

TEST_CASE("An exception in the update callback breaks the engine and releases the other ranks") {
    auto const outcomes = run_and_observe(world, [](LoopbackCommunicator& communicator) {
        ZeroStage<2, Sgd> engine(communicator, registration<float>(toy_specs()));
        forward_and_backward(engine, static_cast<std::uint64_t>(communicator.rank()), 0);
        engine.step(0.1, [&](auto const&) {
            if (communicator.rank() == 1) {
                throw std::runtime_error("no such table");
            }
        });
        engine.parameters_changed();
    });
    CHECK(contains_text("no such table").match(outcomes.rethrown.message));
    CHECK(outcomes.ranks[1].message == "no such table");
    CHECK(outcomes.ranks[0].type == "Aborted");
    CHECK(outcomes.ranks[2].type == "Aborted");
}

TEST_CASE("An exception in the update callback breaks the engine even if its type is one that "
          "elsewhere marks a harmless refusal") {
    for (bool const is_argument : {true, false}) {
        in_every_stage([&]<int N>() {
            Outcome own, later;
            auto const outcomes = run_and_observe(world, [&](LoopbackCommunicator& communicator) {
                ZeroStage<N, Sgd> engine(communicator, registration<float>(toy_specs()));
                forward_and_backward(engine, static_cast<std::uint64_t>(communicator.rank()), 0);
                auto const step = [&] {
                    engine.step(0.1, [&](auto const& slice) {
                        slice.weights()[0] = 0.0F;
                        if (communicator.rank() == 1) {
                            is_argument ? throw InvalidArgument("no such table")
                                        : throw OutOfOrder("no such table");
                        }
                    });
                };
                // Rank 1 catches the exception and continues; the engine alone informs the others.
                if (communicator.rank() == 1) {
                    own = outcome_of(step);
                    later = outcome_of([&] { engine.cancel_step(); });
                } else {
                    step();
                    engine.parameters_changed();   // the others meet rank 1 here in stages 0 to 2,
                    (void)full_parameters(engine); // and here in stage 3
                }
            });
            CHECK(own == Outcome{is_argument ? "InvalidArgument" : "OutOfOrder", "no such table"});
            CHECK(later.type == "BrokenEngine");
            for (std::size_t const rank : {0U, 2U}) {
                CHECK(outcomes.ranks[rank].type == "Aborted");
                CHECK_THAT(outcomes.ranks[rank].message, contains_text("rank 1: no such table"));
            }
        });
    }
}

} // namespace zero::test::caller_update_test
