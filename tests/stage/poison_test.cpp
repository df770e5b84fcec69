#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/snapshot.hpp"
#include "support/stages.hpp"

#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/stage/zero_stage.hpp>

#include <vector>

// NaN in padding, in reused memory and in released memory changes no result. The tests also check
// that it is there.

namespace zero::test::poison_test {

namespace {

constexpr int world = 3;

/// Returns the state of each rank after each of three steps with clipping and two micro-steps. Unit
/// 2 gets no gradient in step 1.
template <class Stage>
std::vector<std::vector<std::uint32_t>> train(bool poison, ReductionSchedule schedule,
                                              Storage storage = Storage::owned) {
    using T = typename Stage::ParameterType;
    return on_ranks<std::vector<std::uint32_t>>(world, [&](LoopbackCommunicator& communicator) {
        auto const rank = static_cast<std::uint64_t>(communicator.rank());
        auto parameters = registration<T, typename Stage::GradientType>(toy_specs());
        std::vector<T> memory(2048);
        for (std::size_t index = 0, begin = 0;
             index < parameters.size() && storage != Storage::owned;
             begin += parameters[index++].elements) {
            parameters[index].data = memory.data() + begin;
            parameters[index].initialise(
                0, std::span<T>(parameters[index].data.get(), parameters[index].elements));
            parameters[index].initialise = nullptr;
        }
        Stage engine(communicator, parameters,
                     {.gradient_clipping = 0.5F,
                      .storage = storage,
                      .poison = poison,
                      .reduction = {.schedule = schedule}});
        std::vector<std::uint32_t> bits;
        for (std::uint64_t step = 0; step < 3; ++step) {
            if (step == 1) {
                engine.begin_step();
                for (auto const micro_step : engine.micro_steps(2)) {
                    for (std::size_t const unit : {4U, 3U, 1U, 0U}) {
                        auto const weights = engine.acquire(unit);
                        auto const gradients = engine.gradients(unit);
                        auto const first = engine.layout().unit_parameters(unit).front();
                        gradients[first][0] = from_float<typename Stage::GradientType>(
                            to_float(gradients[first][0]) + to_float(weights[first][0]));
                        engine.gradients_ready(unit);
                    }
                }
                (void)engine.step(0.01);
            } else {
                (void)run_step(engine, rank, step, 2);
            }
            auto const state = snapshot(engine);
            bits.insert(bits.end(), state.begin(), state.end());
        }
        return bits;
    });
}

template <class Stage>
void check_unchanged() {
    for (auto const schedule : {ReductionSchedule::boundary, ReductionSchedule::every_micro_step}) {
        auto const clean = train<Stage>(false, schedule);
        CHECK((train<Stage>(true, schedule) == clean));
        if constexpr (Stage::stage != 3) {
            CHECK((train<Stage>(true, schedule, Storage::scattered)
                   == train<Stage>(false, schedule, Storage::scattered)));
        }
        bool has_nan = false;
        for (std::uint32_t const word : clean[0]) {
            has_nan = has_nan || (word & 0x7FFFFFFFU) > 0x7F800000U;
        }
        CHECK_FALSE(has_nan);
    }
}

bool is_nan(float value) {
    return value != value;
}

/// The values that one rank finds beside and after its leases.
struct Seen {
    int nan_in_gradient_padding = 0, nan_in_weight_padding = 0;
    bool is_fresh_gradient_nan = false, is_zeroed_gradient_nan = true, is_released_nan = false;
};

template <int N>
std::vector<Seen> look(bool poison) {
    return on_ranks<Seen>(world, [poison](LoopbackCommunicator& communicator) {
        // An inline queue has run every command when a call returns, so the test may read the
        // memory.
        ZeroStage<N> engine(
            communicator, registration<float>(toy_specs()),
            {.poison = poison, .communication_queue = HostBackend::default_compute_queue()});
        Seen seen;
        auto weights = engine.acquire(4);
        float const* const scale = weights[7].data(); // one element, then 63 of padding
        for (int i = 1; i < 64; ++i) {
            seen.nan_in_weight_padding += is_nan(scale[i]) ? 1 : 0;
        }
        weights.release();
        seen.is_released_nan = is_nan(*scale);
        engine.begin_step();
        engine.begin_micro_step(MicroStep::last);
        auto const gradients = engine.gradients(4);
        for (int i = 1; i < 64; ++i) {
            seen.nan_in_gradient_padding += is_nan(gradients[7].data()[i]) ? 1 : 0;
        }
        seen.is_zeroed_gradient_nan = is_nan(gradients[7][0]);
        gradients[7][0] = 5.0F;
        engine.gradients_ready(4);
        seen.is_fresh_gradient_nan = is_nan(engine.gradients(3, {}, false)[5][9]);
        engine.cancel_step();
        return seen;
    });
}

} // namespace

TEST_CASE("Poison changes no bit of float training") {
    in_every_stage([]<int N>() { check_unchanged<ZeroStage<N>>(); });
}

TEST_CASE("Poison changes no bit with 16-bit types and uneven shards") {
    in_every_stage([]<int N>() {
        check_unchanged<ZeroStage<N, Parameters<bfloat16>, RoundRobinPartitioner,
                                  GradientReduction<void, float, float>>>();
    });
}

TEST_CASE("The padding between two gradients that are cleared together is NaN with poison, and "
          "zero without it") {
    for (bool const poison : {true, false}) {
        CAPTURE(poison);
        auto const between =
            on_ranks<std::vector<float>>(1, [&](LoopbackCommunicator& communicator) {
                std::vector<Parameter<float>> const parameters{
                    {.name = "first", .elements = 65, .units = {0}},
                    {.name = "second", .elements = 65, .units = {0}}};
                ZeroStage<2> engine(communicator, parameters,
                                    {.poison = poison,
                                     .communication_queue = HostBackend::default_compute_queue()});
                engine.begin_step();
                engine.begin_micro_step(MicroStep::last);
                auto const gradients = engine.gradients(0);
                float const* const lower = gradients[0].data() < gradients[1].data()
                                               ? gradients[0].data()
                                               : gradients[1].data();
                float const* const upper = gradients[0].data() < gradients[1].data()
                                               ? gradients[1].data()
                                               : gradients[0].data();
                CHECK(upper - lower == 128);
                std::vector<float> const values(lower + 65, upper);
                engine.cancel_step();
                return values;
            })[0];
        CHECK(between.size() == 63);
        for (float const value : between) {
            CHECK((poison ? is_nan(value) : value == 0.0F));
        }
    }
}

TEST_CASE("With poison, padding and uninitialised gradients are NaN; without it padding is zero") {
    in_every_stage([]<int N>() {
        for (Seen const& seen : look<N>(true)) {
            CHECK(seen.nan_in_gradient_padding == 63);
            CHECK(seen.nan_in_weight_padding == 63);
            CHECK_FALSE(seen.is_zeroed_gradient_nan);
            CHECK(seen.is_fresh_gradient_nan);
        }
        for (Seen const& seen : look<N>(false)) {
            CHECK(seen.nan_in_gradient_padding == 0);
            CHECK(seen.nan_in_weight_padding == 0);
        }
    });
}

TEST_CASE("In stage 3 a pointer kept after release reads NaN") {
    for (Seen const& seen : look<3>(true)) {
        CHECK(seen.is_released_nan);
    }
    for (Seen const& seen : look<3>(false)) {
        CHECK_FALSE(seen.is_released_nan);
    }
    for (Seen const& seen : look<2>(true)) {
        CHECK_FALSE(seen.is_released_nan); // replicated parameters stay valid
    }
}

} // namespace zero::test::poison_test
