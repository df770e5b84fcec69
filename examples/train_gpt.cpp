// Trains a small byte-level GPT on real text, on several ranks, under any ZeRO stage, and proves
// that the stage changes nothing but the memory. Ranks are threads of one process, or, with
// --communicator mpi, processes that mpirun or srun started. gpt/model.hpp holds the model,
// gpt/trainer.hpp the calls of the library, gpt/program.hpp the command line, gpt/processes.hpp the
// choice of the communicator.

#include "gpt/host_model.hpp"
#include "gpt/processes.hpp"
#include "gpt/program.hpp"
#include "gpt/timelines.hpp"
#include "gpt/trainer.hpp"

#include <zero/comm/run_ranks.hpp>
#include <zero/comm/timed.hpp>
#include <zero/host/inline_queue.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace gpt;

/// Gathers the measurements of all ranks, which may be processes.
std::vector<RankSummary> gather(HostCommunicator& communicator, RankSummary const& own) {
    static_assert(std::is_trivially_copyable_v<RankSummary>);
    std::vector<RankSummary> all(static_cast<std::size_t>(communicator.size()));
    std::vector<std::size_t> cuts;
    for (std::size_t cut = 0; cut <= all.size(); ++cut) {
        cuts.push_back(cut * sizeof(RankSummary));
    }
    zero::host::InlineQueue queue;
    communicator.all_gather(reinterpret_cast<unsigned char const*>(&own),
                            reinterpret_cast<unsigned char*>(all.data()), cuts, &queue,
                            {"the tables", 0});
    return all;
}

/// @param process this process as a rank; null: ranks are threads
template <class Stage>
Summary train_stage(Settings const& settings, Text const& text, HostCommunicator* process) {
    Config const config = make_config(settings.layers, settings.width, settings.context);
    auto const model = parameters_of(config);
    Summary summary;
    Timelines timelines(settings, process != nullptr ? process->rank() : -1);
    std::function<void(HostCommunicator&)> const rank_body = [&](HostCommunicator& communicator) {
        zero::Timed<HostCommunicator> timed(communicator, timelines.of_rank(communicator.rank()));
        zero::HostMemoryResource memory;
        auto options = engine_options<Stage>(settings);
        options.memory = &memory;
        Stage engine(timed, registration<typename Stage::ParameterType>(model, settings.seed),
                     options);
        RankSummary own;
        zero::TraceReport trace;
        std::uint64_t const hash = train_rank<typename Stage::EngineType>(
            engine, HostDevice<float>(), communicator, config, settings, text, memory, own, trace);
        auto all = gather(communicator, own);
        if (process != nullptr || communicator.rank() == 0) {
            summary.hash = hash;
            summary.trace = std::move(trace);
            summary.ranks = std::move(all);
        }
    };
    if (process != nullptr) {
        zero::run_rank(*process, rank_body);
    } else {
        std::function<void(zero::LoopbackCommunicator&)> const thread_body =
            [&](zero::LoopbackCommunicator& loopback) {
                HostCommunicator communicator(&loopback);
                rank_body(communicator);
            };
        zero::run_ranks(settings.world, thread_body);
    }
    timelines.write();
    summary.conclude(model);
    return summary;
}

Summary train(Settings const& settings, Text const& text, HostCommunicator* process) {
    return with_chosen_types<float, zero::bfloat16, zero::float16>(
        settings, [&]<int N, class P, class Partitioner>() {
            return train_stage<zero::ZeroStage<N, zero::Parameters<P>, zero::SizeCappedBucketer,
                                               Partitioner, zero::Timed<HostCommunicator>>>(
                settings, text, process);
        });
}

} // namespace

int main(int argc, char** argv) {
    Processes processes;
    int const status = run_program(
        argc, argv, "train_gpt",
        "Trains a small byte-level GPT on several ranks, under any ZeRO stage.",
        [&](Settings& settings) {
            processes.join(settings);
            return true;
        },
        [&](Settings const& settings, Text const& text) {
            return train(settings, text, processes.communicator());
        });
    return processes.end(status);
}
