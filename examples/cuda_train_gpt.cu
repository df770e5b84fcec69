// train_gpt on CUDA, with the same model, command line and tables. Ranks are threads on one device
// (`--world`). If a launcher such as torchrun starts one process per device, they are processes
// over NCCL. Built for float32; -DGPT_ALL_TYPES adds the other types of --dtype. Kernels are in
// gpt/cuda/kernels.cuh, their launches and cuBLAS in gpt/cuda/cuda_device.cuh; the host's example
// shares everything else.

#include "gpt/cuda/check.cuh"
#include "gpt/cuda/communicator.cuh"
#include "gpt/cuda/cuda_device.cuh"
#include "gpt/program.hpp"
#include "gpt/timelines.hpp"
#include "gpt/trainer.hpp"

#include <zero/comm/run_ranks.hpp>
#include <zero/comm/timed.hpp>
#include <zero/cuda/queue_clock.hpp>
#include <zero/stage/update_on_host.hpp>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <stdexcept>
#include <type_traits>

namespace {

using namespace gpt;

/// Gathers the measurements of all ranks, over the device, because ranks may be processes.
std::vector<RankSummary> gather(CudaCommunicator& communicator, cudaStream_t stream,
                                RankSummary const& own) {
    static_assert(std::is_trivially_copyable_v<RankSummary>
                  && sizeof(RankSummary) % sizeof(std::int64_t) == 0);
    constexpr std::size_t words = sizeof(RankSummary) / sizeof(std::int64_t);
    auto const rank = static_cast<std::size_t>(communicator.rank());
    std::vector<RankSummary> all(static_cast<std::size_t>(communicator.size()));
    std::vector<std::size_t> cuts;
    for (std::size_t cut = 0; cut <= all.size(); ++cut) {
        cuts.push_back(cut * words);
    }
    CudaBuffer<std::int64_t> buffer(stream, cuts.back());
    std::int64_t* const mine = buffer.data() + cuts[rank];
    check_cuda(cudaMemcpyAsync(mine, &own, sizeof(own), cudaMemcpyHostToDevice, stream),
               "cudaMemcpyAsync");
    communicator.all_gather(static_cast<std::int64_t const*>(mine), buffer.data(), cuts, stream,
                            {"the tables", 0});
    check_cuda(cudaMemcpyAsync(all.data(), buffer.data(), all.size() * sizeof(own),
                               cudaMemcpyDeviceToHost, stream),
               "cudaMemcpyAsync");
    check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    return all;
}

/// @param process this process as a rank; empty: ranks are threads
template <class Stage>
Summary train_stage(Settings const& settings, Text const& text,
                    std::optional<CudaCommunicator>& process) {
    Config const config = make_config(settings.layers, settings.width, settings.context);
    auto const model = parameters_of(config);
    Summary summary;
    Timelines timelines(settings, process ? process->rank() : -1);
    std::function<void(CudaCommunicator&)> const rank_body = [&](CudaCommunicator& communicator) {
        zero::Timed<CudaCommunicator> timed(communicator, timelines.of_rank(communicator.rank()));
        zero::cuda::OwnedStream const stream;
        CountedCudaMemory memory;
        auto options = engine_options<Stage>(settings);
        options.compute_queue = stream.get();
        options.memory = &memory;
        Stage engine(timed, registration<typename Stage::ParameterType>(model, settings.seed),
                     options);
        RankSummary own;
        zero::TraceReport trace;
        CudaDevice device(stream.get(), settings.batch * settings.context);
        std::uint64_t const hash = train_rank<typename Stage::EngineType>(
            engine, std::move(device), communicator, config, settings, text, memory, own, trace);
        auto all = gather(communicator, stream.get(), own);
        if (process || communicator.rank() == 0) {
            summary.hash = hash;
            summary.trace = std::move(trace);
            summary.ranks = std::move(all);
        }
    };
    if (process) {
        rank_body(*process);
    } else {
        using Threads = zero::Loopback<zero::cuda::Backend>;
        std::function<void(Threads&)> const thread_body = [&](Threads& loopback) {
            CudaCommunicator communicator(&loopback);
            rank_body(communicator);
        };
        zero::run_ranks<Threads>(settings.world, thread_body);
    }
    timelines.write();
    summary.conclude(model);
    return summary;
}

/// States that the host holds and updates. Parameters of type float are their own master weights.
template <class P>
using OnHost =
    zero::Offload<std::conditional_t<std::is_same_v<P, float>,
                                     zero::To<zero::HostMemory, zero::BufferKind::optimizer_state>,
                                     zero::To<zero::HostMemory, zero::BufferKind::optimizer_state,
                                              zero::BufferKind::master_weights>>>;

Summary train(Settings settings, Text const& text, std::optional<CudaCommunicator>& process) {
    if (settings.offload == "file" || settings.delayed || settings.memory_limit != 0
        || settings.inner_ranks != 1 || settings.shard != 0 || settings.secondary != 0) {
        throw std::invalid_argument("--offload file, --delayed, --memory-limit, --inner-ranks, "
                                    "--shard and --secondary are options of train_gpt");
    }
    if (settings.is_in_tree() && settings.offload != "none") {
        throw std::invalid_argument("--micro-batches needs states in the memory of the device: "
                                    "this program was built without the others");
    }
    settings.share_micro_batches();
    auto const body = [&]<int N, class P, class Partitioner>() {
        using InMemory = zero::ZeroStage<N, zero::Parameters<P>, zero::SizeCappedBucketer,
                                         Partitioner, zero::Timed<CudaCommunicator>>;
        if constexpr (N == 2 && std::is_same_v<Partitioner, zero::ContiguousPartitioner>) {
            if (settings.offload == "host") {
                return train_stage<typename InMemory::template with<OnHost<P>>>(settings, text,
                                                                                process);
            }
        } else if (settings.offload == "host" && settings.verify == 0) {
            throw std::invalid_argument("--offload host needs --stage 2 and --partitioner "
                                        "contiguous: this program was built without the others");
        }
        if (settings.is_in_tree()) {
            return train_stage<typename InMemory::template with<zero::TreeReduction<>>>(
                settings, text, process);
        }
        return train_stage<InMemory>(settings, text, process);
    };
#ifdef GPT_ALL_TYPES // each type adds 17 engines, which take nvcc half a minute
    return with_chosen_types<float, zero::bfloat16, zero::float16>(settings, body);
#else
    return with_chosen_types<float>(settings, body);
#endif
}

bool has_device() {
    int devices = 0;
    return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}

#ifdef GPT_HAS_NCCL
/// Makes this process a rank if a launcher started it. Only rank 0 prints.
void join_launched_group(Settings& settings, std::optional<zero::cuda::NcclCommunicator>& nccl,
                         std::optional<CudaCommunicator>& process) {
    if (std::getenv("RANK") == nullptr || std::getenv("WORLD_SIZE") == nullptr) {
        return;
    }
    if (settings.verify != 0) {
        throw std::invalid_argument(
            "--verify compares bits, and NCCL adds in an order that depends on how gradients are "
            "cut; without a launcher ranks are threads on one device");
    }
    nccl.emplace(zero::cuda::NcclCommunicator::from_environment());
    process.emplace(&*nccl);
    settings.world = nccl->size();
    if (nccl->rank() != 0 && std::freopen("/dev/null", "w", stdout) == nullptr) {
        throw std::runtime_error("the output of a rank cannot be closed");
    }
}
#endif

} // namespace

int main(int argc, char** argv) {
#ifdef GPT_HAS_NCCL
    std::optional<zero::cuda::NcclCommunicator> nccl;
#endif
    std::optional<CudaCommunicator> process;
    auto const prepare = [&](Settings& settings) {
        if (!has_device()) {
            std::puts("skipped: no CUDA device");
            return false;
        }
#ifdef GPT_HAS_NCCL
        join_launched_group(settings, nccl, process);
#else
        static_cast<void>(settings);
#endif
        return true;
    };
    return run_program(argc, argv, "cuda_train_gpt",
                       "Trains a small byte-level GPT on a CUDA device, under any ZeRO stage; over "
                       "NCCL where a launcher starts one process per device.",
                       prepare, [&](Settings const& settings, Text const& text) {
                           return train(settings, text, process);
                       });
}
