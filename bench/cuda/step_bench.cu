#include "device_time.cuh"
#include "passes.cuh"

#include <zero/cuda/allocator_memory.hpp>
#include <zero/cuda/backend.cuh>
#include <zero/policy/detail/policy_list.hpp>
#include <zero/stage/detail/compose/diagnose_stage.hpp>
#include <zero/stage/detail/compose/stage_base.hpp>
#include <zero/stage/zero_stage.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

// A step of stage 2 with clipping on the tensors of models with 16 million to 1.5 billion
// parameters and one rank, bfloat16 parameters and float gradients. It is compared with its parts,
// each in one launch: a copy of the gradients (the reduction over one rank), the norm and the
// update. Gradients are random. Counters: `host_us` is the time of the host in `step`, and
// `collective_us` that of reporting gradients, for each collective that this starts; both must be
// short compared with the device's. `planned_bytes` is the memory plan, and `pool_used_bytes` and
// `pool_reserved_bytes` are what the device's memory pool handed out and holds.
namespace zero {

namespace {

using bench::elements_of;
using Stage = ZeroStage<2, Parameters<bfloat16>, GradientReduction<float, float, float>,
                        Loopback<cuda::Backend>>;

constexpr std::size_t moved_by_copy = 8; ///< bytes per element
constexpr std::size_t moved_by_step = moved_by_copy + 4 + 30;

/// Returns parameters in units: the embeddings, one unit per block, and the last norm.
std::vector<Parameter<bfloat16, float>> parameters_of(std::vector<std::size_t> const& sizes) {
    constexpr std::size_t in_embeddings = 2;
    constexpr std::size_t in_block = 12;
    std::vector<Parameter<bfloat16, float>> parameters;
    for (std::size_t const elements : sizes) {
        std::size_t const index = parameters.size();
        std::size_t const unit = index < in_embeddings ? 0 : 1 + (index - in_embeddings) / in_block;
        parameters.push_back(
            {.name = std::to_string(index), .elements = elements, .units = {unit}});
    }
    return parameters;
}

/// Fills all memory with random numbers, so the leases hold random gradients. The engine itself
/// initialises what it reads.
class RandomMemory final : public MemoryResource {
public:
    [[nodiscard]] void* allocate(std::size_t bytes, BufferKind kind) override {
        void* const memory = _pool.allocate(bytes, kind);
        cuda::detail::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        bench::fill_normal(static_cast<float*>(memory), bytes / sizeof(float),
                           bench::gradient_deviation);
        return memory;
    }
    void deallocate(void* memory, std::size_t bytes, BufferKind kind) noexcept override {
        _pool.deallocate(memory, bytes, kind);
    }

private:
    MemoryResource& _pool = cuda::default_memory();
};

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

/// The time that the host spends in calls.
class HostTime {
public:
    template <class Call>
    void add(Call const& call) {
        auto const start = std::chrono::steady_clock::now();
        call();
        _sum += std::chrono::steady_clock::now() - start;
        ++_calls;
    }
    [[nodiscard]] double microseconds() const {
        return _sum.count() * 1e6 / static_cast<double>(_calls);
    }

private:
    std::chrono::duration<double> _sum{};
    std::size_t _calls = 0;
};

void step(benchmark::State& state) {
    if (bench::skips_without_device(state)) {
        return;
    }
    auto group = Loopback<cuda::Backend>::make_group(1);
    cuda::OwnedStream const stream;
    Stage::Options options;
    options.compute_queue = stream.get();
    options.gradient_clipping = 1.0F;
    RandomMemory memory;
    options.memory = &memory;
    double const used_before = pool_bytes(cudaMemPoolAttrUsedMemCurrent);
    Stage engine(group.front(), parameters_of(bench::sizes_of(state)), options);
    HostTime in_step;
    HostTime in_backward;
    std::vector<bench::TimedInput> inputs;
    auto const backward = [&] {
        engine.begin_step();
        engine.begin_micro_step(MicroStep::last);
        for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
            auto const gradients = engine.gradients(unit, {}, false);
            for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
                // Only memory whose address was taken counts as written.
                std::span<float> const gradient = gradients[parameter];
                if (inputs.size() < engine.layout().parameters().size()) {
                    inputs.push_back({gradient.data(), gradient.size_bytes()});
                }
            }
            in_backward.add([&] { engine.gradients_ready(unit); });
        }
        engine.end_micro_step();
    };
    backward();
    (void)engine.step(1e-4);
    engine.join();
    in_backward = {}; // without the first step, which loads kernels
    bench::time_on_device(state, stream.get(), moved_by_step * elements_of(bench::sizes_of(state)),
                          inputs, [&](cudaStream_t) {
                              backward();
                              in_step.add([&] { (void)engine.step(1e-4); });
                              engine.join();
                          });
    if (engine.last_report().is_skipped) {
        state.SkipWithError(
            "a step was skipped: it moved nothing"); // its gradients were not finite
    }
    auto const& layout = engine.layout();
    state.counters["host_us"] = in_step.microseconds();
    state.counters["collective_us"] = in_backward.microseconds()
                                      * static_cast<double>(layout.units())
                                      / static_cast<double>(layout.trainable_buckets());
    state.counters["planned_bytes"] = static_cast<double>(engine.memory_plan().engine_bytes());
    state.counters["pool_used_bytes"] = pool_bytes(cudaMemPoolAttrUsedMemCurrent) - used_before;
    state.counters["pool_reserved_bytes"] = pool_bytes(cudaMemPoolAttrReservedMemCurrent);
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

[[maybe_unused]] bool const is_registered = [] {
    bench::add("step/cuda_stage_2/twin", parts);
    bench::add("step/cuda_stage_2/zero", step);
    return true;
}();

} // namespace

} // namespace zero
