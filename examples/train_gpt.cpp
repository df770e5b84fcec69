// Trains a small byte-level GPT on real text, on several ranks of one process, under any ZeRO
// stage, and proves that the stage changes nothing but the memory. gpt/model.hpp holds the model,
// gpt/trainer.hpp the calls of the library, gpt/program.hpp the command line.

#include "gpt/host_model.hpp"
#include "gpt/program.hpp"
#include "gpt/trainer.hpp"

#include <zero/comm/run_ranks.hpp>

#include <functional>

namespace {

using namespace gpt;

template <class Stage>
Summary train_stage(Settings const& settings, Text const& text) {
    Config const config = make_config(settings.layers, settings.width, settings.context);
    auto const model = parameters_of(config);
    Summary summary;
    summary.ranks.resize(static_cast<std::size_t>(settings.world));
    std::function<void(zero::LoopbackCommunicator&)> const rank_body =
        [&](zero::LoopbackCommunicator& communicator) {
            auto const rank = static_cast<std::size_t>(communicator.rank());
            zero::HostMemoryResource memory;
            auto options = engine_options<Stage>(settings);
            options.memory = &memory;
            Stage engine(communicator,
                         registration<typename Stage::ParameterType>(model, settings.seed),
                         options);
            std::uint64_t const hash = train_rank<typename Stage::EngineType>(
                engine, HostDevice<float>(), communicator, config, settings, text, memory,
                summary.ranks[rank]);
            if (rank == 0) {
                summary.hash = hash;
            }
        };
    zero::run_ranks(settings.world, rank_body);
    summary.conclude(model);
    return summary;
}

Summary train(Settings const& settings, Text const& text) {
    return with_chosen_types<float, zero::bfloat16, zero::float16>(
        settings, [&]<int N, class P, class Partitioner>() {
            return train_stage<
                zero::ZeroStage<N, zero::Parameters<P>, zero::SizeCappedBucketer, Partitioner>>(
                settings, text);
        });
}

} // namespace

int main(int argc, char** argv) {
    return run_program(
        argc, argv, "train_gpt",
        "Trains a small byte-level GPT on ranks of this process, under any ZeRO stage.",
        [](Settings&) { return true; }, train);
}
