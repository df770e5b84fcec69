// Saves GPT-2 124M as two ranks hold it after a few steps of AdamW, for read_checkpoint.py:
// FOLDER/checkpoint, in files that both ranks write, and FOLDER/model.safetensors, the float master
// weights in one file. Values are random, so that a tensor at the wrong place is found.
//
//   g++ -std=c++20 -O2 -Iinclude -Itests bench/peers/save_gpt2.cpp -pthread -o save_gpt2

#include "support/shapes.hpp"

#include <zero/checkpoint/save_checkpoint.hpp>
#include <zero/checkpoint/save_parameters.hpp>
#include <zero/zero.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <span>
#include <vector>

namespace {

using namespace zero;

using Stage = ZeroStage<2, Parameters<bfloat16>, AdamW>;

constexpr int world = 2;
constexpr int steps = 3;

/// Returns a value in [-0.5, 0.5) that looks random.
float value_of(std::size_t seed, std::size_t index) {
    std::uint64_t bits = (seed << 40U) + index;
    bits *= 0x9e3779b97f4a7c15U;
    bits = (bits ^ bits >> 31U) * 0xbf58476d1ce4e5b9U;
    return static_cast<float>(bits >> 40U) * 0x1p-24F - 0.5F;
}

void save(LoopbackCommunicator& communicator, std::filesystem::path const& folder) {
    std::vector<Stage::Registration> parameters;
    for (auto const& spec : test::gpt2_124m()) {
        std::size_t const seed = parameters.size();
        parameters.push_back({.name = spec.name,
                              .elements = spec.elements,
                              .units = spec.units,
                              .initialise = [seed](std::size_t begin, std::span<bfloat16> values) {
                                  for (std::size_t index = 0; index < values.size(); ++index) {
                                      values[index] =
                                          from_float<bfloat16>(value_of(seed, begin + index));
                                  }
                              }});
    }
    Stage engine(communicator, parameters);
    auto const rank = static_cast<std::size_t>(communicator.rank());
    for (std::size_t step = 0; step < steps; ++step) {
        engine.begin_step();
        engine.begin_micro_step(MicroStep::last);
        for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
            auto const gradients = engine.gradients(unit);
            for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
                auto const gradient = gradients[parameter];
                std::size_t const seed = 1000 + 1000 * step + parameter;
                for (std::size_t index = 0; index < gradient.size(); ++index) {
                    gradient[index] = from_float<bfloat16>(value_of(2 * seed + rank, index));
                }
            }
            engine.gradients_ready(unit);
        }
        engine.end_micro_step();
        (void)engine.step(1e-3).report();
    }
    save_checkpoint(engine, folder / "checkpoint");
    save_parameters(engine, folder / "model.safetensors");
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: save_gpt2 FOLDER\n");
        return EXIT_FAILURE;
    }
    try {
        run_ranks(world, [&](LoopbackCommunicator& communicator) { save(communicator, argv[1]); });
        return EXIT_SUCCESS;
    } catch (std::exception const& error) {
        std::fprintf(stderr, "error: %s\n", error.what());
        return EXIT_FAILURE;
    }
}
