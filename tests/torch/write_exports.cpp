// Writes the weights of a model for other programs, in every way the library has.
//
//     write_exports SHAPES FOLDER
//
// Each line of the file SHAPES is the name of a parameter and its dimensions. Element i of
// parameter p is (7 i + p) % 253 / 8 - 15, which every type holds exactly.

#include <zero/checkpoint/checkpoint_reader.hpp>
#include <zero/checkpoint/consolidate.hpp>
#include <zero/checkpoint/save_checkpoint.hpp>
#include <zero/checkpoint/save_parameters.hpp>
#include <zero/comm/run_ranks.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>
#include <string>
#include <vector>

int main(int argc, char** argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: write_exports SHAPES FOLDER\n");
        return 2;
    }
    try {
        std::filesystem::path const folder = argv[2];
        std::vector<zero::Parameter<float>> model;
        std::ifstream file(argv[1]);
        for (std::string line; std::getline(file, line);) {
            std::istringstream words(line);
            std::size_t const number = model.size();
            zero::Parameter<float>& parameter = model.emplace_back();
            words >> parameter.name;
            for (std::size_t size = 0; words >> size;) {
                parameter.shape.push_back(size);
            }
            parameter.units = {number};
            parameter.initialise = [number](std::size_t begin, std::span<float> values) {
                for (std::size_t i = 0; i < values.size(); ++i) {
                    values[i] = static_cast<float>((7 * (begin + i) + number) % 253) / 8 - 15;
                }
            };
        }
        zero::run_ranks(2, [&](zero::LoopbackCommunicator& communicator) {
            zero::ZeroStage<3> engine(communicator, model);
            zero::save_parameters(engine, folder / "saved.safetensors");
            zero::save_parameters(engine, folder / "saved_bfloat16.safetensors",
                                  zero::DType::bfloat16);
            zero::save_checkpoint(engine, folder / "checkpoints", {.name = "one"});
        });
        zero::CheckpointReader checkpoint(folder / "checkpoints/one");
        zero::consolidate(checkpoint, folder / "consolidated.safetensors");
        zero::consolidate(checkpoint, folder / "consolidated_float16.safetensors",
                          zero::DType::float16);
    } catch (std::exception const& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 0;
}
