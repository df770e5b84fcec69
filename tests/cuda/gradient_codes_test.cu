#include "captured_steps.cuh"

#include "support/caller_memory.hpp"

#include <zero/comm/groups.hpp>
#include <zero/comm/loopback.hpp>
#include <zero/policy/dynamic_loss_scaler.hpp>
#include <zero/stage/update_on_host.hpp>
#include <zero/stage/wire.hpp>
#include <zero/zero.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

// Engines on a device whose gradients travel in codes have the bits of those on the host: sums on
// one level and on two, errors that are kept, steps that are skipped, and captured graphs.

namespace zero::test::gradient_codes_on_device_test {

namespace {

using DeviceLoopback = Loopback<cuda::Backend>;
using HostGroups = Groups<LoopbackCommunicator, Hybrid>;
using DeviceGroups = Groups<DeviceLoopback, Hybrid>;

/// What a run shows: each step's report, and the state at the end.
struct Seen {
    std::vector<bool> skipped{};
    std::vector<float> scales{};
    std::vector<std::uint64_t> norms{}; ///< bits
    std::vector<std::int64_t> first_non_finite{};
    std::vector<std::int64_t> non_finite{};
    Trained trained{};

    friend bool operator==(Seen const&, Seen const&) = default;
};

struct Run {
    int world = 2;
    ReductionSchedule schedule = ReductionSchedule::every_micro_step;
    float spoiled = 0.0F; ///< a gradient of the last rank in the fourth step, unless it is 0
    bool cancels = false; ///< the fifth step
};

/// Writes the gradients of a micro-step.
template <class Engine>
void write(Engine& engine, cudaStream_t stream, std::uint64_t who, std::uint64_t when, float scale,
           float spoiled) {
    using G = typename Engine::GradientType;
    for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
        auto const gradients = engine.gradients(unit);
        for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
            auto const gradient = gradients[parameter];
            std::vector<G> values;
            for (std::size_t i = 0; i < gradient.size(); ++i) {
                float const smaller = 1.0F / static_cast<float>(1U << i * 7 % 5);
                values.push_back(from_float<G>(smaller * scale * noise(who, parameter, i, when)));
            }
            if (parameter == 1 && spoiled != 0.0F) {
                values[130] = from_float<G>(spoiled);
            }
            if (stream == nullptr) {
                std::copy(values.begin(), values.end(), gradient.begin());
            } else if (!values.empty()) {
                cuda::detail::check(cudaMemcpyAsync(gradient.data(), values.data(),
                                                    gradient.size_bytes(), cudaMemcpyHostToDevice,
                                                    stream),
                                    "cudaMemcpyAsync");
                cuda::detail::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
            }
        }
        engine.gradients_ready(unit);
    }
}

template <class Stage>
constexpr bool is_of_host = std::is_same_v<typename Stage::Communicator::Backend, HostBackend>;

template <class Stage>
Seen train(typename Stage::Communicator& communicator, Run const& run, cudaStream_t stream) {
    constexpr bool is_on_host = is_of_host<Stage>;
    auto const rank = static_cast<std::uint64_t>(communicator.rank());
    bool const is_last = communicator.rank() + 1 == run.world;
    typename Stage::Options options;
    options.reduction.schedule = run.schedule;
    options.reduction.wire_bytes = 300;
    options.loss_scaler.initial_scale = 8.0F;
    options.loss_scaler.growth_interval = 2;
    options.loss_scaler.hysteresis = 1;
    if constexpr (requires { options.feedback.reset_every; }) {
        options.feedback.reset_every = 5;
    }
    if constexpr (!is_on_host) {
        options.compute_queue = stream;
    }
    Stage engine(communicator, registration<typename Stage::ParameterType>(toy_specs()), options);
    Seen seen;
    for (std::uint64_t step = 0; step < 8; ++step) {
        engine.begin_step();
        float scale = 0.0F;
        if constexpr (is_on_host) {
            scale = engine.loss_scale();
        } else {
            scale = on_host(std::span<float const>(engine.loss_scale().data(), 1)).front();
        }
        for (auto const micro_step : engine.micro_steps(2)) {
            write(engine, stream, 2 + rank, step * 16 + micro_step, scale,
                  step == 3 && micro_step == 1 && is_last ? run.spoiled : 0.0F);
        }
        if (step == 4 && run.cancels) {
            engine.cancel_step();
            continue;
        }
        auto const report = engine.step(0.01).report();
        seen.skipped.push_back(report.is_skipped);
        seen.scales.push_back(scale);
        seen.norms.push_back(std::bit_cast<std::uint64_t>(report.gradient_norm));
        seen.first_non_finite.push_back(report.first_non_finite);
        seen.non_finite.push_back(report.non_finite_count);
    }
    if constexpr (is_on_host) {
        seen.trained.resize(toy_specs());
        seen.trained.parameters = full_parameters(engine);
        engine.for_each_owned_slice([&](auto const& slice) { seen.trained.add(slice); });
    } else {
        collect(engine, toy_specs(), seen.trained);
    }
    return seen;
}

/// Trains on all ranks, in groups of two if the stage has groups.
template <class Stage>
Seen run_of(Run const& run) {
    using Communicator = typename Stage::Communicator;
    auto const body = [&](Communicator& communicator) {
        if constexpr (is_of_host<Stage>) {
            return train<Stage>(communicator, run, nullptr);
        } else {
            cuda::OwnedStream const stream;
            return train<Stage>(communicator, run, stream.get());
        }
    };
    std::vector<Seen> ranks;
    if constexpr (GroupedCommunicator<Communicator>) {
        ranks = on_ranks<Seen, Communicator>(run.world, {.shard = 2}, body);
    } else {
        ranks = on_ranks<Seen, Communicator>(run.world, body);
    }
    std::vector<Trained> trained;
    for (Seen const& rank : ranks) {
        trained.push_back(rank.trained);
    }
    ranks.front().trained = Trained::joined(trained);
    return ranks.front();
}

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

/// Compares with the host a run that takes all steps, and one that skips one. With an even number
/// of ranks the latter also cancels one.
template <class OnHost, class OnDevice>
void check_run(Run run, float spoiled) {
    for (bool const is_bad : {false, true}) {
        CAPTURE(OnHost::stage, run.world, name_of(run.schedule), is_bad);
        run.spoiled = is_bad ? spoiled : 0.0F;
        run.cancels = is_bad && run.world % 2 == 0;
        Seen const expected = run_of<OnHost>(run);
        CHECK((run_of<OnDevice>(run) == expected));
        CHECK(expected.skipped[3] == is_bad);
        CHECK((expected.first_non_finite[3] >= 0) == is_bad);
    }
}

/// Does so in some worlds.
template <int N, class T, class W, class... OfDevice>
void check_stage() {
    using OnHost = ZeroStage<N, Parameters<T>, DynamicLossScaler, SizeCappedBucketer, W>;
    using OnDevice = ZeroStage<N, Parameters<T>, DynamicLossScaler, SizeCappedBucketer,
                               DeviceLoopback, W, OfDevice...>;
    for (int const world : {1, 2, 3}) {
        for (auto const schedule :
             {ReductionSchedule::boundary, ReductionSchedule::every_micro_step}) {
            if (sizeof...(OfDevice) != 0 && schedule == ReductionSchedule::boundary) {
                continue; // refused where sums lie on the host
            }
            check_run<OnHost, OnDevice>({world, schedule}, world == 1   ? infinity
                                                           : world == 2 ? nan
                                                                        : -infinity);
        }
    }
}

/// Does so in two groups of two ranks.
template <int N, class T, class W>
void check_levels() {
    using OnHost = ZeroStage<N, Parameters<T>, DynamicLossScaler, HostGroups, W>;
    using OnDevice = ZeroStage<N, Parameters<T>, DynamicLossScaler, DeviceGroups, W>;
    for (auto const schedule : {ReductionSchedule::boundary, ReductionSchedule::every_micro_step}) {
        check_run<OnHost, OnDevice>({4, schedule}, N == 2 ? nan : infinity);
    }
}

} // namespace

TEST_CASE("An engine on a device has the bits of gradients in codes on the host", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    check_stage<1, bfloat16, Wire<Plain, Int8Blocks>>();
    check_stage<2, float, Wire<Plain, Int4Blocks>>();
    check_stage<3, bfloat16, Wire<Int8Blocks, Int4Blocks>>();
}

TEST_CASE("An engine on a device has the bits of the errors that the host keeps", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    check_stage<1, float, Wire<Plain, Int4Blocks, ErrorFeedback<float>>>();
    check_stage<2, bfloat16, Wire<Int8Blocks, Int8Blocks, ErrorFeedback<Int8Blocks>>>();
    check_stage<3, bfloat16, Wire<Int8Blocks, Int4Blocks, ErrorFeedback<float>>>();
}

TEST_CASE("An engine on a device has the bits of codes on two levels on the host", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    check_levels<1, bfloat16, Wire<Plain, Level<Plain, Int8Blocks>>>();
    check_levels<2, float, Wire<Plain, Level<Int4Blocks, Int8Blocks>>>();
    check_levels<3, bfloat16, Wire<Plain, Int4Blocks, ErrorFeedback<float>>>();
    using OnHost = ZeroStage<2, DynamicLossScaler, HostGroups, Wire<Plain, Int8Blocks>>;
    using Other =
        ZeroStage<2, DynamicLossScaler, DeviceGroups, Wire<Plain, Level<Int8Blocks, Int4Blocks>>>;
    CHECK_FALSE((run_of<Other>({4}) == run_of<OnHost>({4})));
}

TEST_CASE("Without feedback, or with another schedule, bits on a device are others", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    using Kept = Wire<Plain, Int4Blocks, ErrorFeedback<float>>;
    using OnHost = ZeroStage<2, DynamicLossScaler, Kept>;
    using OnDevice = ZeroStage<2, DynamicLossScaler, DeviceLoopback, Kept>;
    using Forgets = ZeroStage<2, DynamicLossScaler, DeviceLoopback, Wire<Plain, Int4Blocks>>;
    Seen const expected = run_of<OnHost>({});
    CHECK((run_of<OnDevice>({}) == expected));
    CHECK_FALSE((run_of<Forgets>({}) == expected));
    CHECK_FALSE((run_of<OnDevice>({.schedule = ReductionSchedule::boundary}) == expected));
}

TEST_CASE("Gradients in codes are reduced to sums that lie on the host of a device", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    using Sums = Offload<To<HostMemory, BufferKind::gradients>, UpdateOnDevice>;
    check_stage<2, bfloat16, Wire<Plain, Int4Blocks, ErrorFeedback<float>>, Sums>();
}

TEST_CASE("A replayed step encodes gradients, and keeps errors, as an eager one", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    auto const run = []<class Stage>(int world, bool captures, Stage const*) {
        GroupGraph graph(world);
        auto const body = [&](auto& communicator) {
            return run_captured_steps<Stage>(communicator, captures ? &graph : nullptr,
                                             static_cast<std::size_t>(communicator.rank()));
        };
        if constexpr (GroupedCommunicator<typename Stage::Communicator>) {
            return on_ranks<CapturedResult, DeviceGroups>(world, {.shard = 2}, body);
        } else {
            return on_ranks<CapturedResult, DeviceLoopback>(world, body);
        }
    };
    auto const check = [&]<int N, class Feedback>(Feedback const*) {
        using Stage = ZeroStage<N, Parameters<float16>, SizeCappedBucketer, DeviceLoopback,
                                Wire<Plain, Int4Blocks, Feedback>>;
        using Forgets = ZeroStage<N, Parameters<float16>, SizeCappedBucketer, DeviceLoopback,
                                  Wire<Plain, Int4Blocks>>;
        for (int const world : {1, 3}) {
            CAPTURE(N, world);
            auto const captured = run(world, true, static_cast<Stage const*>(nullptr));
            CHECK(captured == run(world, false, static_cast<Stage const*>(nullptr)));
            CHECK_FALSE(captured == run(world, true, static_cast<Forgets const*>(nullptr)));
            for (CapturedResult const& rank : captured) {
                CHECK(rank.was_skipped);
            }
        }
    };
    check.operator()<2>(static_cast<ErrorFeedback<float> const*>(nullptr));
    check.operator()<3>(static_cast<ErrorFeedback<Int8Blocks> const*>(nullptr));
    ZeroStage<2, Parameters<float16>, DeviceGroups,
              Wire<Plain, Level<Int4Blocks, Int8Blocks>>> const* on_two_levels = nullptr;
    CHECK(run(4, true, on_two_levels) == run(4, false, on_two_levels));
}

TEST_CASE("The plan of an engine whose gradients travel in codes is what it allocates on a device",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    auto const check = []<class Stage>(Stage const*) {
        auto const body = [](typename Stage::Communicator& communicator) {
            cuda::OwnedStream const stream;
            CountingMemory memory;
            typename Stage::Options options;
            options.compute_queue = stream.get();
            options.memory = &memory;
            options.reduction.wire_bytes = 300;
            Stage const engine(communicator, registration<bfloat16>(toy_specs()), options);
            auto const plan = engine.memory_plan();
            int differences = plan[BufferKind::wire].bytes() == 0 ? 1 : 0;
            for (std::size_t kind = 0; kind < buffer_kinds; ++kind) {
                auto const of = static_cast<BufferKind>(kind);
                differences +=
                    memory.bytes(of) == (plan[of].is_callers ? 0 : plan[of].bytes()) ? 0 : 1;
            }
            bool const keeps = plan[BufferKind::gradient_errors].bytes() != 0;
            return differences + (keeps == requires { options.feedback.reset_every; } ? 0 : 1);
        };
        if constexpr (GroupedCommunicator<typename Stage::Communicator>) {
            CHECK(on_ranks<int, DeviceGroups>(4, {.shard = 2}, body) == std::vector<int>(4, 0));
        } else {
            CHECK(on_ranks<int, DeviceLoopback>(3, body) == std::vector<int>{0, 0, 0});
        }
    };
    check(static_cast<ZeroStage<1, Parameters<bfloat16>, DeviceLoopback,
                                Wire<Plain, Int4Blocks, ErrorFeedback<float>>> const*>(nullptr));
    check(static_cast<
          ZeroStage<2, Parameters<bfloat16>, DeviceLoopback, Wire<Int8Blocks, Int8Blocks>> const*>(
        nullptr));
    check(static_cast<ZeroStage<3, Parameters<bfloat16>, DeviceLoopback,
                                Wire<Int8Blocks, Int4Blocks, ErrorFeedback<Int8Blocks>>> const*>(
        nullptr));
    check(static_cast<ZeroStage<3, Parameters<bfloat16>, DeviceGroups,
                                Wire<Plain, Level<Int4Blocks, Int8Blocks>>> const*>(nullptr));
}

} // namespace zero::test::gradient_codes_on_device_test
