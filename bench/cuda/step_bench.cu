#include "device_time.cuh"
#include "passes.cuh"
#include "training.cuh"

#include <zero/core/buffer.hpp>
#include <zero/cuda/backend.cuh>
#include <zero/host/update.hpp>
#include <zero/ops/adamw.hpp>
#include <zero/policy/detail/policy_list.hpp>
#include <zero/stage/detail/compose/diagnose_stage.hpp>
#include <zero/stage/detail/compose/stage_base.hpp>
#include <zero/stage/update_on_host.hpp>
#include <zero/stage/zero_stage.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <thread>
#include <vector>

// A step of stage 2 with clipping on the tensors of models with 16 million to 1.5 billion
// parameters and one rank, bfloat16 parameters and float gradients. It is compared with its parts,
// each in one launch: a copy of the gradients (the reduction over one rank), the norm and the
// update. Gradients are random. Counters: `host_us` is the time of the host in `step`, and
// `collective_us` that of reporting gradients, for each collective that this starts; both must be
// short compared with the device's. `planned_bytes` is the memory plan, and `pool_used_bytes` and
// `pool_reserved_bytes` are what the device's memory pool handed out and holds. Where the host
// updates, "delayed" rows time steps with an update that is delayed behind as long a backward pass.
// Where the device updates states of the host, the twin copies as many bytes both ways at once.
namespace zero {

namespace {

using bench::elements_of;
using Stage = ZeroStage<2, Parameters<bfloat16>, GradientReduction<float, float, float>,
                        Loopback<cuda::Backend>>;

using States = To<HostMemory, BufferKind::optimizer_state, BufferKind::master_weights>;
using StageOnHost = Stage::with<Offload<States>>;
using DelayedStage = Stage::with<Offload<States, DelayedUpdate>>;
using StageOverLink = Stage::with<Offload<States, UpdateOnDevice>>;

constexpr std::size_t moved_by_copy = 8; ///< bytes per element
constexpr std::size_t moved_by_step = moved_by_copy + 4 + 30;
constexpr std::size_t moved_on_host = 30;
constexpr std::size_t moved_over_link = 2 * 12; ///< masters and states, there and back

/// Returns a size of the current device's memory pool.
double pool_bytes(cudaMemPoolAttr attribute) {
    int device = 0;
    cudaMemPool_t pool = nullptr;
    std::uint64_t bytes = 0;
    cuda::detail::check(cudaGetDevice(&device), "cudaGetDevice");
    cuda::detail::check(cudaDeviceGetMemPool(&pool, device), "cudaDeviceGetMemPool");
    cuda::detail::check(cudaMemPoolGetAttribute(pool, attribute, &bytes),
                        "cudaMemPoolGetAttribute");
    return static_cast<double>(bytes);
}

template <class Stage>
typename Stage::Options options_of(cuda::OwnedStream const& stream, std::size_t threads) {
    typename Stage::Options options;
    if constexpr (requires { options.offload.threads; }) {
        options.offload.threads = threads;
    }
    options.compute_queue = stream.get();
    options.gradient_clipping = 1.0F;
    return options;
}

/// @param moved bytes per element
/// @param threads of the host, if it updates
template <class Stage>
void step(benchmark::State& state, std::size_t moved, std::size_t threads = 0) {
    if (bench::skips_without_device(state)) {
        return;
    }
    auto group = Loopback<cuda::Backend>::make_group(1);
    cuda::OwnedStream const stream;
    double const used_before = pool_bytes(cudaMemPoolAttrUsedMemCurrent);
    auto const options = options_of<Stage>(stream, threads);
    bench::Training<Stage> training(group.front(), bench::sizes_of(state), options);
    Stage& engine = training.engine();
    bench::time_on_device(state, stream.get(), moved * elements_of(bench::sizes_of(state)),
                          training.inputs(), [&](cudaStream_t) {
                              training.backward();
                              training.step();
                          });
    if (engine.last_report().is_skipped) { // its gradients were not finite
        state.SkipWithError("a step was skipped: it moved nothing");
    }
    if (std::any_of(training.inputs().begin(), training.inputs().end(), bench::is_constant)) {
        state.SkipWithError("the last gradients are constant");
    }
    auto const& layout = engine.layout();
    state.counters["host_us"] = training.in_step.microseconds();
    state.counters["collective_us"] = training.in_backward.microseconds()
                                      * static_cast<double>(layout.units())
                                      / static_cast<double>(layout.trainable_buckets());
    state.counters["planned_bytes"] = static_cast<double>(engine.memory_plan().engine_bytes());
    state.counters["pool_used_bytes"] = pool_bytes(cudaMemPoolAttrUsedMemCurrent) - used_before;
    state.counters["pool_reserved_bytes"] = pool_bytes(cudaMemPoolAttrReservedMemCurrent);
}

/// Passes that keep a device busy instead of a model.
class BusyPasses {
public:
    /// Enqueues passes that take about `seconds`.
    void enqueue(cudaStream_t stream, double seconds) const {
        for (double passed = 0.0; passed < seconds; passed += _seconds) {
            pass(stream);
        }
    }

private:
    void pass(cudaStream_t stream) const { bench::read(stream, _data.data(), bytes, _sum.data()); }
    [[nodiscard]] double measure() const {
        cuda::OwnedStream const stream;
        bench::DeviceTimer timer(4096);
        (void)timer.seconds(stream.get(), 5, [this](cudaStream_t on) { pass(on); });
        return timer.seconds(stream.get(), 20, [this](cudaStream_t on) { pass(on); });
    }

    static constexpr std::size_t bytes = std::size_t{256} << 20U;
    bench::DeviceArray<char> _data{bytes};
    bench::DeviceArray<unsigned> _sum{1};
    double _seconds = measure();
};

/// Returns the seconds of a step behind a backward pass of some seconds.
template <class Stage>
double seconds_behind(BusyPasses const& passes, double backward, benchmark::State const& state,
                      std::size_t threads) {
    constexpr int steps = 5;
    auto group = Loopback<cuda::Backend>::make_group(1);
    cuda::OwnedStream const stream;
    auto const options = options_of<Stage>(stream, threads);
    bench::Training<Stage> training(group.front(), bench::sizes_of(state), options);
    cuda::detail::check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
    auto const start = std::chrono::steady_clock::now();
    for (int i = 0; i < steps; ++i) {
        passes.enqueue(stream.get(), backward);
        training.backward();
        training.step();
    }
    cuda::detail::check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / steps;
}

/// Times steps whose update runs on the host during the next backward pass, which takes as long.
/// `hidden` is the part of the update's time that a step does not show.
void delayed_step(benchmark::State& state, std::size_t threads) {
    if (bench::skips_without_device(state)) {
        return;
    }
    BusyPasses const passes;
    for (auto _ : state) {
        double const update = seconds_behind<StageOnHost>(passes, 0.0, state, threads);
        double const prompt = seconds_behind<StageOnHost>(passes, update, state, threads);
        double const delayed = seconds_behind<DelayedStage>(passes, update, state, threads);
        state.SetIterationTime(delayed);
        state.counters["update_ms"] = 1e3 * update;
        state.counters["prompt_ms"] = 1e3 * prompt;
        state.counters["hidden"] = (prompt - delayed) / update;
    }
}

/// The work of a step that the host updates, with no order between its parts: copies down of the
/// gradients and parameters, copies up of the parameters, and an update of memory that is not
/// copied.
class PartsOnHost {
public:
    explicit PartsOnHost(std::vector<std::size_t> const& sizes)
        : _elements(elements_of(sizes)), _on_device(_elements) {
        bench::fill_normal(_on_device.data(), _elements, bench::gradient_deviation);
        for (Pages<float>* const array : {&_gradients, &_masters, &_first, &_second}) {
            cuda::Backend::copy_bytes(cudaStreamPerThread, array->data(), _on_device.data(),
                                      _elements * sizeof(float));
        }
        bench::fill_squares(_on_device.data(), _on_device.data(), _elements);
        cuda::Backend::copy_bytes(cudaStreamPerThread, _second.data(), _on_device.data(),
                                  _elements * sizeof(float));
        cuda::detail::check(cudaStreamSynchronize(cudaStreamPerThread), "cudaStreamSynchronize");
    }

    void copy(cudaStream_t stream) const {
        std::size_t const bytes = _elements * sizeof(bfloat16);
        cuda::Backend::copy_bytes(stream, _place.data(), _on_device.data(), 2 * bytes);
        cuda::Backend::copy_bytes(stream, _place.data(), _on_device.data(), bytes);
        cuda::Backend::copy_bytes(stream, _on_device.data(), _place.data(), bytes);
    }

    void update(std::size_t threads) {
        std::vector<std::thread> others;
        std::size_t const each = (_elements / threads + 63) / 64 * 64;
        auto const update_part = [&](std::size_t thread) {
            std::size_t const begin = std::min(thread * each, _elements);
            host::update<AdamW>(
                _gradients.data() + begin,
                MasterPointers<float, bfloat16>{_masters.data() + begin,
                                                _parameters.data() + begin},
                StatePointers<2, float>{{_first.data() + begin, _second.data() + begin}},
                std::min(each, _elements - begin), 1.0F, AdamW::hyper({}, 1e-4, 1));
        };
        for (std::size_t thread = 1; thread < threads; ++thread) {
            others.emplace_back(update_part, thread);
        }
        update_part(0);
        for (std::thread& other : others) {
            other.join();
        }
    }

private:
    template <class T>
    class Pages {
    public:
        explicit Pages(std::size_t elements)
            : _buffer(cuda::Backend::staging_memory(), elements, BufferKind::staging) {}
        [[nodiscard]] T* data() const { return _buffer.data(); }

    private:
        Buffer<T> _buffer;
    };

    std::size_t _elements;
    bench::DeviceArray<float> _on_device;
    Pages<float> _place{_elements};
    Pages<float> _gradients{_elements};
    Pages<float> _masters{_elements};
    Pages<float> _first{_elements};
    Pages<float> _second{_elements};
    Pages<bfloat16> _parameters{_elements};
};

/// Times the parts of a step that the host updates: `who` is "link", "update", or both at once.
void parts_on_host(benchmark::State& state, std::size_t threads, bool copies, bool updates) {
    if (bench::skips_without_device(state)) {
        return;
    }
    std::size_t const n = elements_of(bench::sizes_of(state));
    PartsOnHost parts(bench::sizes_of(state));
    cuda::OwnedStream const stream;
    for (auto _ : state) {
        auto const start = std::chrono::steady_clock::now();
        if (copies) {
            parts.copy(stream.get());
        }
        if (updates) {
            parts.update(threads);
        }
        cuda::detail::check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
        state.SetIterationTime(
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    state.SetBytesProcessed(static_cast<std::int64_t>(static_cast<std::size_t>(state.iterations())
                                                      * moved_on_host * n));
}

/// Copies what the update of states of the host moves, up and down at once.
void copies_both_ways(benchmark::State& state) {
    if (bench::skips_without_device(state)) {
        return;
    }
    std::size_t const bytes = moved_over_link / 2 * elements_of(bench::sizes_of(state));
    Buffer<char> const up(cuda::Backend::staging_memory(), bytes, BufferKind::staging);
    Buffer<char> const down(cuda::Backend::staging_memory(), bytes, BufferKind::staging);
    bench::DeviceArray<char> const in(bytes);
    bench::DeviceArray<char> const out(bytes);
    cuda::OwnedStream const first;
    cuda::OwnedStream const second;
    for (auto _ : state) {
        auto const start = std::chrono::steady_clock::now();
        cuda::Backend::copy_bytes(first.get(), in.data(), up.data(), bytes);
        cuda::Backend::copy_bytes(second.get(), down.data(), out.data(), bytes);
        for (cudaStream_t const stream : {first.get(), second.get()}) {
            cuda::detail::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        }
        state.SetIterationTime(
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    state.SetBytesProcessed(
        static_cast<std::int64_t>(static_cast<std::size_t>(state.iterations()) * 2 * bytes));
}

void parts(benchmark::State& state) {
    if (bench::skips_without_device(state)) {
        return;
    }
    std::size_t const n = elements_of(bench::sizes_of(state));
    bench::NormPass<float> const norm(bench::sizes_of(state));
    bench::UpdatePass const update(bench::sizes_of(state));
    std::vector<bench::TimedInput> inputs = update.inputs();
    inputs.push_back(norm.inputs()[0]);
    bench::time_on_device(state, moved_by_step * n, inputs, [&](cudaStream_t stream) {
        cuda::Backend::copy_bytes(stream, update.gradients(), norm.gradients(), n * sizeof(float));
        norm.enqueue(stream);
        update.enqueue(stream);
    });
}

/// Adds a row for the two smaller models. @param once for a row whose repetition makes engines
template <class Run>
void add_for_small(std::string const& name, Run const& run, bool once = false) {
    auto const models = bench::models();
    for (auto const& sizes : {models[0], models[1]}) {
        auto* const added = benchmark::RegisterBenchmark(name.c_str(), run)
                                ->Arg(static_cast<std::int64_t>(elements_of(sizes)))
                                ->UseManualTime()
                                ->Unit(benchmark::kMillisecond);
        if (once) {
            added->Iterations(1);
        } else {
            added->MinTime(0.1);
        }
    }
}

/// Adds a step whose states lie on the host, which updates them, and its parts.
void add_on_host(std::size_t threads) {
    std::string const name = "step/cuda_stage_2_on_host_" + std::to_string(threads) + "_threads/";
    auto const add = [&](char const* who, auto const& run, bool once = false) {
        add_for_small(name + who, run, once);
    };
    add("zero", [=](benchmark::State& state) { step<StageOnHost>(state, moved_on_host, threads); });
    add("twin", [=](benchmark::State& state) { parts_on_host(state, threads, true, true); });
    add("link", [=](benchmark::State& state) { parts_on_host(state, threads, true, false); });
    add("update", [=](benchmark::State& state) { parts_on_host(state, threads, false, true); });
    add(
        "delayed", [=](benchmark::State& state) { delayed_step(state, threads); }, true);
}

[[maybe_unused]] bool const is_registered = [] {
    bench::add("step/cuda_stage_2/twin", parts);
    bench::add("step/cuda_stage_2/zero",
               [](benchmark::State& state) { step<Stage>(state, moved_by_step); });
    add_for_small("step/cuda_stage_2_over_link/twin", copies_both_ways);
    add_for_small("step/cuda_stage_2_over_link/zero",
                  [](benchmark::State& state) { step<StageOverLink>(state, moved_over_link); });
    add_on_host(1);
    add_on_host(8);
    return true;
}();

} // namespace

} // namespace zero
