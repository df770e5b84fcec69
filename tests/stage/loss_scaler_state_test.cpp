#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/snapshot.hpp"

#include <zero/policy/loss_scaler_presets.hpp>
#include <zero/policy/static_loss_scaler.hpp>
#include <zero/stage/zero_stage.hpp>

#include <limits>
#include <string>
#include <vector>

// The state of the loss scaler is read and set between steps.

namespace zero::test::loss_scaler_state_test {

namespace {

constexpr int world = 2;
using State = DynamicLossScaler::State;
using Numbers = std::vector<float>;

Numbers numbers(State const& state) {
    return {state.scale, static_cast<float>(state.clean_steps),
            static_cast<float>(state.hysteresis_left), static_cast<float>(state.delay_left)};
}

/// Runs one step, which overflows on rank 1 if `event` is 'x', and returns its loss scale.
template <class Engine>
float step_with(Engine& engine, int rank, char event) {
    engine.begin_step();
    float const scale = engine.loss_scale();
    for (auto const micro_step : engine.micro_steps(1)) {
        if (event == 'x' && rank == 1) {
            std::vector<float> const gradient(64, std::numeric_limits<float>::infinity());
            engine.hand_over(3, 5, gradient).synchronise();
        }
        run_micro_step(engine, static_cast<std::uint64_t>(rank), 0, 0, scale);
    }
    (void)engine.step(0.01);
    return scale;
}

template <int N>
using Dynamic = ZeroStage<N, DynamicLossScaler>;

template <int N>
typename Dynamic<N>::Options options() {
    return {.extra_leases = 1,
            .loss_scaler = {
                .initial_scale = 1024, .growth_interval = 4, .growth_delay = 1, .hysteresis = 3}};
}

} // namespace

TEMPLATE_TEST_CASE_SIG(
    "A state is read back as it was set, and the next step uses its scale and counters", "",
    ((int N), N), 0, 1, 2, 3) {
    auto const ranks = on_ranks<std::vector<Numbers>>(world, [](LoopbackCommunicator&
                                                                    communicator) {
        Dynamic<N> engine(communicator, registration<float>(toy_specs()), options<N>());
        std::vector<Numbers> seen;
        engine.set_loss_scaler_state({256, 2, 1, 0}); // two steps before growth, hysteresis used up
        seen.push_back(numbers(engine.loss_scaler_state()));
        seen.push_back({step_with(engine, communicator.rank(), '.')});
        seen.push_back({step_with(engine, communicator.rank(), '.')});
        seen.push_back(numbers(engine.loss_scaler_state()));
        engine.set_loss_scaler_state({64, 3, 1, 0});
        seen.push_back({step_with(engine, communicator.rank(), 'x')});
        seen.push_back(numbers(engine.loss_scaler_state()));
        return seen;
    });
    for (auto const& seen : ranks) {
        CHECK(seen
              == std::vector<Numbers>{
                  {256, 2, 1, 0}, {256}, {256}, {512, 0, 3, 0}, {64}, {32, 0, 1, 1}});
    }
}

TEMPLATE_TEST_CASE_SIG(
    "A run that continues in another engine from the saved state is the same run", "", ((int N), N),
    0, 1, 2, 3) {
    auto const play = [](std::string const& events, std::size_t cut) {
        return on_ranks<std::vector<Numbers>>(world, [&](LoopbackCommunicator& communicator) {
            std::vector<Numbers> seen;
            State state = DynamicLossScaler::initial(options<N>().loss_scaler);
            std::size_t step = 0;
            for (std::size_t const end : {cut, events.size()}) {
                Dynamic<N> engine(communicator, registration<float>(toy_specs()), options<N>());
                engine.set_loss_scaler_state(state);
                for (; step < end; ++step) {
                    seen.push_back({step_with(engine, communicator.rank(), events[step])});
                    state = engine.loss_scaler_state();
                    seen.push_back(numbers(state));
                }
            }
            return seen;
        });
    };
    std::string const events = "..x.....xxx.....";
    auto const whole = play(events, events.size());
    CHECK(whole[0].back() == Numbers{2048, 0, 3, 0}); // grown twice, backed off once
    for (std::size_t const cut : {1U, 3U, 7U, 10U, 11U}) {
        CHECK(play(events, cut) == whole);
    }
}

TEMPLATE_TEST_CASE_SIG(
    "A scale set from outside replaces only the scale, for both loss and unscaling", "",
    ((int N), N), 0, 1, 2, 3) {
    struct Seen {
        std::vector<Numbers> numbers;
        std::vector<std::uint32_t> end;
    };
    auto const run = [](bool overrides) {
        return on_ranks<Seen>(world, [overrides](LoopbackCommunicator& communicator) {
            Dynamic<N> engine(communicator, registration<float>(toy_specs()), options<N>());
            Seen seen;
            seen.numbers.push_back({step_with(engine, communicator.rank(), '.')});
            seen.numbers.push_back({step_with(engine, communicator.rank(), '.')});
            if (overrides) {
                engine.set_loss_scale(32.0F);
            }
            seen.numbers.push_back(numbers(engine.loss_scaler_state()));
            for (int step = 0; step < 4; ++step) {
                seen.numbers.push_back({step_with(engine, communicator.rank(), '.')});
            }
            seen.end = snapshot(engine);
            return seen;
        });
    };
    auto const changed = run(true);
    auto const unchanged = run(false);
    CHECK(changed[0].numbers
          == std::vector<Numbers>{{1024}, {1024}, {32, 1, 3, 0}, {32}, {32}, {32}, {64}});
    CHECK(unchanged[0].numbers
          == std::vector<Numbers>{{1024}, {1024}, {1024, 1, 3, 0}, {1024}, {1024}, {1024}, {2048}});
    for (std::size_t rank = 0; rank < world; ++rank) {
        CHECK(changed[rank].numbers == changed[0].numbers);
        // Scales are powers of two, so no bit differs if the step unscales with the scale that was
        // applied.
        CHECK(changed[rank].end == unchanged[rank].end);
    }
}

TEST_CASE("A static scale can be replaced, and then stays") {
    for (auto const& scales : on_ranks<Numbers>(world, [](LoopbackCommunicator& communicator) {
             ZeroStage<2, StaticLossScaler> engine(
                 communicator, registration<float>(toy_specs()),
                 {.extra_leases = 1, .loss_scaler = {.scale = 128.0F}});
             Numbers seen{step_with(engine, communicator.rank(), '.')};
             engine.set_loss_scale(8.0F);
             seen.push_back(step_with(engine, communicator.rank(), 'x'));
             seen.push_back(step_with(engine, communicator.rank(), '.'));
             return seen;
         })) {
        CHECK(scales == Numbers{128, 8, 8});
    }
}

TEST_CASE("Invalid scales and states are refused, and the state stays") {
    run_ranks(1, [](LoopbackCommunicator& communicator) {
        Dynamic<1> engine(communicator, registration<float>(toy_specs()), options<1>());
        constexpr float infinity = std::numeric_limits<float>::infinity();
        for (float const scale :
             {0.0F, -1.0F, infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
            CHECK_THROWS_AS(engine.set_loss_scale(scale), InvalidArgument);
            CHECK_THROWS_WITH(engine.set_loss_scaler_state({scale, 0, 1, 0}),
                              contains_text("it must be positive and finite"));
        }
        CHECK_THROWS_WITH(engine.set_loss_scale(0x1p-127F), contains_text("below 2^-126"));
        CHECK_THROWS_WITH(engine.set_loss_scale(0.5F),
                          contains_text("0.5 lies outside minimum..maximum of the dynamic "
                                        "loss scaler, 1..16777216"));
        CHECK(numbers(engine.loss_scaler_state()) == Numbers{1024, 0, 3, 1});
        CHECK(step_with(engine, 0, '.') == 1024.0F);
        engine.begin_step();
        CHECK_THROWS_AS(engine.set_loss_scale(2.0F), OutOfOrder);
        CHECK_THROWS_WITH(engine.set_loss_scaler_state({2, 0, 1, 0}),
                          contains_text("set_loss_scaler_state() inside a step"));
        engine.cancel_step();
        CHECK(engine.loss_scaler_state().scale == 1024.0F);

        ZeroStage<1> plain(communicator, registration<float>(toy_specs()));
        CHECK_NOTHROW(plain.set_loss_scaler_state(plain.loss_scaler_state()));
        CHECK_THROWS_WITH(plain.set_loss_scaler_state({2.0F}),
                          contains_text("without a loss scaler, whose scale is 1"));
        CHECK(plain.loss_scaler_state().scale == 1.0F);
    });
}

TEST_CASE("An overflow at a scale of 1 ends a run with DeepSpeed's preset, and halves the scale "
          "with PyTorch's") {
    struct Seen {
        Outcome outcome;
        float next_scale = 0.0F;
    };
    auto const play = [](DynamicLossScalerOptions const& preset) {
        return on_ranks<Seen>(world, [&](LoopbackCommunicator& communicator) {
            ZeroStage<2, DynamicLossScaler> engine(communicator, registration<float>(toy_specs()),
                                                   {.extra_leases = 1, .loss_scaler = preset});
            engine.set_loss_scaler_state({1.0F, 0, 1, 0});
            Seen seen;
            seen.outcome = outcome_of([&] { (void)step_with(engine, communicator.rank(), 'x'); });
            seen.next_scale = engine.loss_scaler_state().scale;
            return seen;
        });
    };
    for (Seen const& seen : play(loss_scaler_presets::deepspeed())) {
        CHECK(seen.outcome.type == "LossScaleExhausted");
        CHECK(seen.next_scale == 1.0F);
    }
    for (Seen const& seen : play(loss_scaler_presets::pytorch())) {
        CHECK(seen.outcome == Outcome{});
        CHECK(seen.next_scale == 0.5F);
    }
}

} // namespace zero::test::loss_scaler_state_test
