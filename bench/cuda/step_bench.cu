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
#include <string>
#include <vector>

// A step of stage 2 with clipping on the tensors of models with 16 million to 1.5 billion
// parameters and one rank, bfloat16 parameters and float gradients. It is compared with its parts,
// each in one launch: a copy of the gradients (the reduction over one rank), the norm and the
// update. The counter `host_us` is the time of the host in `step`, which must be short compared
// with the device's.
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

/// Fills all memory with zeros, including the leases. Otherwise a bucket may contain non-finite
/// values, and the step would be skipped.
class ZeroedMemory final : public MemoryResource {
public:
    [[nodiscard]] void* allocate(std::size_t bytes, BufferKind kind) override {
        void* const memory = _pool.allocate(bytes, kind);
        cuda::detail::check(cudaMemset(memory, 0, bytes), "cudaMemset");
        return memory;
    }
    void deallocate(void* memory, std::size_t bytes, BufferKind kind) noexcept override {
        _pool.deallocate(memory, bytes, kind);
    }

private:
    MemoryResource& _pool = cuda::default_memory();
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
    ZeroedMemory memory;
    options.memory = &memory;
    Stage engine(group.front(), parameters_of(bench::sizes_of(state)), options);
    auto const backward = [&] {
        engine.begin_step();
        engine.begin_micro_step(MicroStep::last);
        for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
            auto const gradients = engine.gradients(unit, {}, false);
            for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
                (void)gradients[parameter]; // only memory whose address was taken counts as written
            }
            engine.gradients_ready(unit);
        }
        engine.end_micro_step();
    };
    backward();
    (void)engine.step(1e-4);
    engine.join();
    std::chrono::duration<double> in_step{};
    double steps = 0.0;
    bench::time_on_device(state, stream.get(), moved_by_step * elements_of(bench::sizes_of(state)),
                          [&](cudaStream_t) {
                              backward();
                              auto const start = std::chrono::steady_clock::now();
                              (void)engine.step(1e-4);
                              in_step += std::chrono::steady_clock::now() - start;
                              steps += 1.0;
                              engine.join();
                          });
    if (engine.last_report().is_skipped) {
        state.SkipWithError(
            "a step was skipped: it moved nothing"); // its gradients were not finite
    }
    state.counters["host_us"] = in_step.count() * 1e6 / steps;
}

void parts(benchmark::State& state) {
    if (bench::skips_without_device(state)) {
        return;
    }
    std::size_t const n = elements_of(bench::sizes_of(state));
    bench::NormPass<float> const norm(bench::sizes_of(state));
    bench::UpdatePass const update(bench::sizes_of(state));
    bench::time_on_device(state, moved_by_step * n, [&](cudaStream_t stream) {
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
