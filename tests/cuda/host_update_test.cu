#include "cuda/captured_steps.cuh"

#include "support/outcome.hpp"
#include "support/stages.hpp"

#include <zero/host/instruction_set.hpp>
#include <zero/layout/balanced_partitioner.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/ops/lamb.hpp>
#include <zero/ops/muon.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/stage/describe.hpp>
#include <zero/stage/update_on_host.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

// States in memory of the host, which updates them, or the device does: every stage gives the bits
// of an engine that has its states on the device.

namespace zero::test::host_update_test {

namespace {

using DeviceLoopback = Loopback<cuda::Backend>;

using AllStates = Offload<To<HostMemory, BufferKind::optimizer_state, BufferKind::master_weights>>;
using OwnMasters = Offload<To<HostMemory, BufferKind::optimizer_state>>;
using Delayed =
    Offload<To<HostMemory, BufferKind::optimizer_state, BufferKind::master_weights>, DelayedUpdate>;
template <BufferKind... kinds>
using OnDevice = Offload<To<HostMemory, kinds...>, UpdateOnDevice>;
using Everything = To<HostMemory, BufferKind::optimizer_state, BufferKind::master_weights,
                      BufferKind::gradients, BufferKind::parameters>;
using AllButParameters =
    To<HostMemory, BufferKind::optimizer_state, BufferKind::master_weights, BufferKind::gradients>;

/// Trains with the states on the host, in every stage and several worlds, and compares with the
/// engine of the host.
template <class States, class... Policies, class Configure>
void compare_all_stages(Configure const& configure, std::vector<std::uint64_t> const& steps = {4},
                        std::vector<ParameterSpec> const& specs = toy_specs()) {
    for (int const world : {1, 2, 3}) {
        for (std::uint64_t const count : steps) {
            CAPTURE(world, count);
            using Host = ZeroStage<2, Policies..., SizeCappedBucketer>;
            typename Host::Options host_options;
            configure(host_options);
            Trained const expected =
                trained<Host>(world, host_options, {.steps = count, .specs = specs});
            in_every_stage([&]<int N>() {
                using Stage = ZeroStage<N, Policies..., SizeCappedBucketer, DeviceLoopback, States>;
                typename Stage::Options options;
                configure(options);
                CHECK(trained_on_device<Stage>(world, options, count, 0.01, 24, specs) == expected);
            });
        }
    }
}

/// Trains in one stage and several worlds, and compares with the engine of the host.
template <int N, class P, class States>
void compare_stage() {
    for (int const world : {1, 2, 3}) {
        CAPTURE(world);
        auto const configure = [](auto& options) {
            options.gradient_clipping = 0.5F;
            options.bucketer.bucket_bytes = 64;
            options.reduction.schedule = ReductionSchedule::every_micro_step;
        };
        using Host = ZeroStage<2, Parameters<P>, SizeCappedBucketer>;
        using Stage = ZeroStage<N, Parameters<P>, SizeCappedBucketer, DeviceLoopback, States>;
        typename Host::Options host_options;
        typename Stage::Options options;
        configure(host_options);
        configure(options);
        CHECK(trained_on_device<Stage>(world, options) == trained<Host>(world, host_options));
    }
}

/// More buckets than places, so that a bucket waits for the place of an earlier one.
auto const with_small_buckets = [](auto& options) {
    options.gradient_clipping = 0.5F;
    options.bucketer.bucket_bytes = 64;
};

/// Page-locked memory, counted.
class CountedPages final : public MemoryResource {
public:
    void* allocate(std::size_t bytes, BufferKind kind) override {
        _bytes[static_cast<std::size_t>(kind)] += bytes;
        return cuda::RuntimeBackend::staging_memory().allocate(bytes, kind);
    }
    void deallocate(void* memory, std::size_t bytes, BufferKind kind) noexcept override {
        _bytes[static_cast<std::size_t>(kind)] -= bytes;
        cuda::RuntimeBackend::staging_memory().deallocate(memory, bytes, kind);
    }
    [[nodiscard]] std::size_t of(BufferKind kind) const {
        return _bytes[static_cast<std::size_t>(kind)];
    }

private:
    std::array<std::size_t, buffer_kinds> _bytes{};
};

struct CountingBackend : cuda::Backend {
    inline static CountedPages pages;
    static CountedPages& staging_memory() noexcept { return pages; }
};

} // namespace

#if defined(__x86_64__)
TEST_CASE("In a translation unit of nvcc the host updates with the instructions of the machine") {
    __builtin_cpu_init();
    bool const expected = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
    CHECK(host::is_supported(host::InstructionSet::avx2) == expected);
}
#endif

TEST_CASE("Chunks of the host, and threads that share one, change no bit, whatever the form of "
          "weights and states",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    for (auto const& [threads, chunk_bytes] : {std::pair(3U, 1U << 25U), {64U, 1500U}}) {
        CAPTURE(threads, chunk_bytes);
        auto const configure = [threads = threads, chunk_bytes = chunk_bytes](auto& options) {
            if constexpr (requires { options.offload.threads; }) {
                options.offload.threads = threads;
                options.offload.chunk_bytes = chunk_bytes;
            }
        };
        compare_all_stages<AllStates, Parameters<bfloat16>>(configure);
        compare_all_stages<OwnMasters>(configure);
        compare_all_stages<AllStates, Parameters<bfloat16>, SplitMasterWeights,
                           BlockScaledState<float16>>(configure);
        compare_all_stages<AllStates, Parameters<bfloat16>, BlockScaledState<power8>>(configure);
        compare_all_stages<OwnMasters, Parameters<bfloat16>, StochasticRounding,
                           OptimizerState<bfloat16>>(configure);
    }
}

TEST_CASE("The host updates copied master weights with the bits of the device after each step",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    compare_all_stages<AllStates, Parameters<bfloat16>>(with_small_buckets, {1, 2, 3, 4});
}

TEST_CASE("The host updates parameters that are their own master weights, split ones and "
          "stochastically rounded ones with the bits of the device",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    compare_all_stages<OwnMasters>(with_small_buckets);
    compare_all_stages<OwnMasters, Sgd>([](auto& options) { options.optimizer.momentum = 0.9F; });
    compare_all_stages<AllStates, Parameters<bfloat16>, SplitMasterWeights,
                       BlockScaledState<float16>>(with_small_buckets);
    compare_all_stages<OwnMasters, Parameters<bfloat16>, StochasticRounding,
                       OptimizerState<bfloat16>>(with_small_buckets);
}

TEST_CASE("The host updates caller-owned parameters, and poisoned memory, with the bits of the "
          "device",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    Trained const expected = trained<ZeroStage<2, Parameters<bfloat16>>>(3);
    for (Storage const storage : {Storage::owned, Storage::scattered, Storage::adopted}) {
        using Stage = ZeroStage<2, Parameters<bfloat16>, DeviceLoopback, AllStates>;
        Stage::Options options;
        options.storage = storage;
        options.poison = storage == Storage::owned;
        options.bucketer.bucket_bytes = 64;
        CHECK(trained_on_device<Stage>(3, options) == expected);
    }
}

TEST_CASE("The device updates states in memory of the host with the bits of states on the device",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    using States = OnDevice<BufferKind::optimizer_state, BufferKind::master_weights>;
    compare_all_stages<States, Parameters<bfloat16>>(with_small_buckets);
    compare_all_stages<OnDevice<BufferKind::optimizer_state>>(with_small_buckets);
    compare_all_stages<States, Parameters<bfloat16>, Lamb, BalancedPartitioner>(with_small_buckets);
    compare_all_stages<States, Parameters<bfloat16>, SplitMasterWeights, BlockScaledState<float16>>(
        with_small_buckets);
}

TEST_CASE("The host updates whole parameters with the bits of engines on the host", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    for (auto const& [threads, chunk_bytes] : {std::pair(1U, 1U << 25U), {3U, 600U}}) {
        CAPTURE(threads, chunk_bytes);
        auto const configure = [threads = threads, chunk_bytes = chunk_bytes](auto& options) {
            options.bucketer.bucket_bytes = 1024;
            options.poison = true;
            if constexpr (requires { options.offload.threads; }) {
                options.offload.threads = threads;
                options.offload.chunk_bytes = chunk_bytes;
            }
        };
        compare_all_stages<AllStates, Parameters<bfloat16>, Lamb, BalancedPartitioner>(configure);
        auto specs = toy_specs();
        specs[1].rows = 20; // of 25 columns
        specs[5].rows = 8;
        compare_all_stages<OwnMasters, Muon, RoundRobinPartitioner>(configure, {4}, specs);
    }
}

TEST_CASE("Gradients, and in stage 3 parameters, in memory of the host change no bit, whoever "
          "updates",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    compare_stage<2, bfloat16, OnDevice<BufferKind::gradients>>();
    compare_stage<2, bfloat16, Offload<AllButParameters>>();
    compare_stage<2, bfloat16, Offload<AllButParameters, DelayedUpdate>>();
    compare_stage<3, bfloat16, Offload<Everything, UpdateOnDevice>>();
    compare_stage<3, bfloat16, Offload<Everything>>();
    compare_stage<3, float, OnDevice<BufferKind::parameters>>();
    compare_stage<3, float,
                  Offload<To<HostMemory, BufferKind::parameters, BufferKind::gradients,
                             BufferKind::optimizer_state>>>();
}

TEST_CASE("Gradients in memory of the host that the device would add before they are reduced are "
          "refused",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    auto const outcomes = on_ranks<Outcome, DeviceLoopback>(2, [](auto& communicator) {
        return outcome_of([&] {
            using Stage = ZeroStage<2, DeviceLoopback, OnDevice<BufferKind::gradients>>;
            cuda::OwnedStream const stream;
            Stage::Options options;
            options.compute_queue = stream.get();
            options.reduction.schedule = ReductionSchedule::boundary;
            Stage const engine(communicator, registration<float>(toy_specs()), options);
        });
    });
    for (Outcome const& outcome : outcomes) {
        CHECK(outcome.type == "InvalidArgument");
        CHECK(outcome.message.find("reduction.schedule is boundary") != std::string::npos);
    }
}

TEST_CASE("Changed learning rates, a skipped step and parameters that a step leaves reach the host "
          "in eager steps and in graphs",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    in_every_stage([&]<int N>() {
        using Stage = ZeroStage<N, Parameters<float16>, SizeCappedBucketer, DeviceLoopback>;
        using OnHost = typename Stage::template with<AllStates>;
        auto const run = []<class S>(S*, int world, bool captures, bool leaves) {
            GroupGraph graph(world);
            return on_ranks<CapturedResult, DeviceLoopback>(world, [&](auto& communicator) {
                return run_captured_steps<S>(communicator, captures ? &graph : nullptr,
                                             static_cast<std::size_t>(communicator.rank()), leaves);
            });
        };
        for (int const world : {1, 2}) {
            for (bool const leaves : {false, true}) {
                CAPTURE(world, leaves);
                auto const expected = run(static_cast<Stage*>(nullptr), world, false, leaves);
                CHECK(expected[0].was_skipped);
                CHECK(run(static_cast<OnHost*>(nullptr), world, false, leaves) == expected);
                CHECK(run(static_cast<OnHost*>(nullptr), world, true, leaves) == expected);
            }
        }
    });
}

TEST_CASE("The host updates after 1, 2 and 5 micro-steps with the bits and the norm of the device",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    in_every_stage([&]<int N>() {
        using Stage = ZeroStage<N, Parameters<bfloat16>, SizeCappedBucketer, DeviceLoopback>;
        auto const run = []<class S>(S*, std::size_t micro_steps, std::vector<double>& norms) {
            return merged(on_ranks<Trained, DeviceLoopback>(2, [&](auto& communicator) {
                cuda::OwnedStream const stream;
                typename S::Options options;
                options.gradient_clipping = 0.5F;
                options.compute_queue = stream.get();
                options.reduction.one_micro_step = micro_steps == 1;
                S engine(communicator, registration<bfloat16>(toy_specs()), options);
                auto const rank = static_cast<std::uint64_t>(communicator.rank());
                for (std::uint64_t step = 0; step < 3; ++step) {
                    auto const ticket =
                        run_device_step(engine, stream.get(), rank, step, micro_steps, 0.01, 8);
                    if (rank == 0) {
                        norms.push_back(ticket.report().gradient_norm);
                    }
                }
                Trained result;
                collect(engine, toy_specs(), result);
                return result;
            }));
        };
        for (std::size_t const micro_steps : std::vector<std::size_t>{1, 2, 5}) {
            std::vector<double> expected;
            std::vector<double> norms;
            Trained const in_memory = run(static_cast<Stage*>(nullptr), micro_steps, expected);
            using OnHost = typename Stage::template with<AllStates>;
            CHECK(run(static_cast<OnHost*>(nullptr), micro_steps, norms) == in_memory);
            CHECK(norms == expected);
            CHECK(norms.size() == 3);
            if constexpr (N >= 2) { // gradients are added there
                using Added = typename Stage::template with<Offload<AllButParameters>>;
                norms.clear();
                CHECK(run(static_cast<Added*>(nullptr), micro_steps, norms) == in_memory);
                CHECK(norms == expected);
            }
        }
    });
}

TEST_CASE("A parameter without a gradient in a step gets zeros on the host, and not those of the "
          "step before",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    auto const run = []<class Stage>(Stage*, bool is_unused) {
        return merged(on_ranks<Trained, DeviceLoopback>(2, [&](auto& communicator) {
            cuda::OwnedStream const stream;
            typename Stage::Options options;
            options.compute_queue = stream.get();
            options.reduction.schedule = ReductionSchedule::every_micro_step;
            Stage engine(communicator, registration<bfloat16>(toy_specs()), options);
            auto const rank = static_cast<std::uint64_t>(communicator.rank());
            for (std::uint64_t step = 0; step < 3; ++step) {
                engine.begin_step();
                for (auto const micro_step : engine.micro_steps(2)) {
                    auto const& layout = engine.layout();
                    for (std::size_t unit = layout.units(); unit-- > 0;) {
                        auto const weights = engine.acquire(unit);
                        auto const gradients = engine.gradients(unit);
                        for (std::size_t const parameter : layout.unit_parameters(unit)) {
                            bool const is_left = is_unused && step == 1 && parameter % 2 == 1;
                            if (is_left || !layout.parameter(parameter).trainable) {
                                continue; // nobody asks for the gradient
                            }
                            if (auto const gradient = gradients[parameter]; !gradient.empty()) {
                                cuda::detail::launch(
                                    stream.get(), 4, 128, add_toy_gradient<bfloat16>,
                                    gradient.data(), gradient.size(), 2 + rank, parameter,
                                    step * 16 + micro_step, engine.loss_scale().data(), 4);
                            }
                        }
                        engine.gradients_ready(unit);
                    }
                }
                (void)engine.step(0.01);
            }
            Trained result;
            collect(engine, toy_specs(), result);
            return result;
        }));
    };
    auto const compare = [&]<int N>() {
        using Stage = ZeroStage<N, Parameters<bfloat16>, SizeCappedBucketer, DeviceLoopback>;
        using OnHost = typename Stage::template with<AllStates>;
        Trained const expected = run(static_cast<Stage*>(nullptr), true);
        CHECK(!(run(static_cast<Stage*>(nullptr), false) == expected));
        CHECK(run(static_cast<OnHost*>(nullptr), true) == expected);
        if constexpr (N >= 2) {
            using Added = typename Stage::template with<Offload<AllButParameters>>;
            using Linked = typename Stage::template with<OnDevice<BufferKind::gradients>>;
            CHECK(run(static_cast<Added*>(nullptr), true) == expected);
            CHECK(run(static_cast<Linked*>(nullptr), true) == expected);
        }
    };
    in_every_stage(compare);
}

TEST_CASE("With states on the host the memory plan equals what an engine allocates on the device "
          "and in page-locked memory",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    auto const compare = []<class Stage>(Stage*) {
        auto const wrong = on_ranks<int, Loopback<CountingBackend>>(1, [&](auto& communicator) {
            CountedPages& pages = CountingBackend::pages;
            cuda::OwnedStream const stream;
            CountingMemory memory;
            typename Stage::Options options;
            options.compute_queue = stream.get();
            options.memory = &memory;
            auto specs = toy_specs();
            specs[1].rows = 20;
            Stage engine(communicator, registration<bfloat16>(specs), options);
            auto plan = engine.memory_plan();
            int found = 0;
            for (std::size_t kind = 0; kind < buffer_kinds; ++kind) {
                auto const of = static_cast<BufferKind>(kind);
                found += memory.bytes(of) == (plan[of].is_callers ? 0 : plan[of].bytes()) ? 0 : 1;
            }
            std::size_t states = 0;
            for (BufferKind const kind : detail::config_of_t<Stage>::Offload::kinds) {
                states += pages.of(kind);
            }
            std::size_t const all =
                states + pages.of(BufferKind::staging) + pages.of(BufferKind::scratch);
            found += plan.tier_bytes == all && states != 0 ? 0 : 1;
            std::string const line = "page-locked: " + std::to_string(all) + " bytes";
            found += engine.describe_memory().find(line) != std::string::npos ? 0 : 1;
            (void)run_device_step(engine, stream.get(), 0, 0, 2, 0.01, 8);
            (void)engine.step_count();
            bool const is_muon =
                std::is_same_v<typename detail::config_of_t<Stage>::Optimizer, Muon>;
            found += (pages.of(BufferKind::scratch) != 0) == is_muon ? 0 : 1;
            found += pages.of(BufferKind::staging) + pages.of(BufferKind::scratch) + states == all
                         ? 0
                         : 1;
            return found;
        });
        CHECK(wrong == std::vector{0});
        for (std::size_t kind = 0; kind < buffer_kinds; ++kind) {
            CHECK(CountingBackend::pages.of(static_cast<BufferKind>(kind)) == 0);
        }
    };
    in_every_stage([&]<int N>() {
        using Stage = ZeroStage<N, Parameters<bfloat16>, BlockScaledState<float16>,
                                SizeCappedBucketer, Loopback<CountingBackend>>;
        compare(static_cast<typename Stage::template with<AllStates>*>(nullptr));
        compare(static_cast<typename Stage::template with<Delayed>*>(nullptr));
        using States = OnDevice<BufferKind::optimizer_state, BufferKind::master_weights>;
        compare(static_cast<typename Stage::template with<States>*>(nullptr));
    });
    using Stage = ZeroStage<3, Parameters<bfloat16>, Loopback<CountingBackend>>;
    compare(static_cast<Stage::with<Offload<Everything>>*>(nullptr));
    compare(static_cast<Stage::with<Offload<Everything, UpdateOnDevice>>*>(nullptr));
    using MuonStage = ZeroStage<3, Parameters<bfloat16>, Muon, BalancedPartitioner,
                                Loopback<CountingBackend>, AllStates>;
    compare(static_cast<MuonStage*>(nullptr));
}

TEST_CASE("A step whose update is delayed cannot be captured in a graph", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    auto const messages = on_ranks<std::string, DeviceLoopback>(1, [](auto& communicator) {
        using Stage = ZeroStage<2, Parameters<bfloat16>, DeviceLoopback, Delayed>;
        cuda::OwnedStream const stream;
        Stage::Options options;
        options.compute_queue = stream.get();
        Stage engine(communicator, registration<bfloat16>(toy_specs()), options);
        std::string message;
        cuda::detail::check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal),
                            "cudaStreamBeginCapture");
        try {
            engine.begin_step();
        } catch (OutOfOrder const& error) {
            message = error.what();
        }
        cudaGraph_t graph = nullptr;
        cuda::detail::check(cudaStreamEndCapture(stream.get(), &graph), "cudaStreamEndCapture");
        cuda::detail::check(cudaGraphDestroy(graph), "cudaGraphDestroy");
        (void)run_device_step(engine, stream.get(), 0, 0, 1, 0.01, 8); // the engine goes on
        engine.settle();
        return message;
    });
    CHECK(messages[0].find("leave zero::DelayedUpdate out of Offload (rank 0)")
          != std::string::npos);
}

TEST_CASE("Values that are written between steps are what the host updates next", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    using Stage = ZeroStage<2, Parameters<bfloat16>, DeviceLoopback>;
    auto const run = []<class S>(S*) {
        return merged(on_ranks<Trained, DeviceLoopback>(2, [&](auto& communicator) {
            cuda::OwnedStream const stream;
            typename S::Options options;
            options.compute_queue = stream.get();
            S engine(communicator, registration<bfloat16>(toy_specs()), options);
            auto const rank = static_cast<std::uint64_t>(communicator.rank());
            for (std::uint64_t step = 0; step < 4; ++step) {
                (void)run_device_step(engine, stream.get(), rank, step, 2, 0.01, 8);
                if (step == 1) { // masters and parameters become 2, and then 0.5
                    engine.for_each_owned_slice([&](auto const& slice) {
                        std::vector<bfloat16> const twos(slice.values.size(),
                                                         from_float<bfloat16>(2.0F));
                        copy_to_device(slice.values.data(), twos.data(), twos.size());
                    });
                    engine.parameters_changed();
                }
                if (step == 2) {
                    engine.for_each_owned_slice([&](auto const& slice) {
                        std::vector<float> const halves(slice.master.size(), 0.5F);
                        copy_to_device(slice.master.data(), halves.data(), halves.size(),
                                       cudaMemcpyDefault); // may lie on the host
                    });
                }
            }
            Trained result;
            collect(engine, toy_specs(), result);
            return result;
        }));
    };
    Trained const expected = run(static_cast<Stage*>(nullptr));
    CHECK(run(static_cast<Stage::with<AllStates>*>(nullptr)) == expected);
    CHECK_FALSE(expected == trained<ZeroStage<2, Parameters<bfloat16>>>(2));
}

TEST_CASE("A description says that the host updates, and that tiles are not used", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    auto const unused = on_ranks<std::vector<std::string>, DeviceLoopback>(1, [](auto& group) {
        using Zero = ZeroStage<0, Parameters<bfloat16>, DeviceLoopback, AllStates>;
        cuda::OwnedStream const stream;
        Zero::Options options;
        options.compute_queue = stream.get();
        options.update_tile_elements = 64;
        return Zero(group, registration<bfloat16>(even_specs(64)), options).unused_options();
    });
    CHECK(unused[0]
          == std::vector<std::string>{"update_tile_elements (the host updates bucket by bucket)"});
    using Stage = ZeroStage<2, Parameters<bfloat16>, DeviceLoopback>;
    CHECK(describe<Stage::with<AllStates>>().find(
              ", optimizer state and master weights on the host, which updates")
          != std::string::npos);
    CHECK(describe<Stage::with<OnDevice<BufferKind::gradients>>>().find(", gradients on the host")
          != std::string::npos);
    CHECK(describe<Stage>().find("on the host") == std::string::npos);
}

} // namespace zero::test::host_update_test
