// Saves checkpoints while training goes on, of a model in two parameter groups, and resumes from
// an earlier one. docs/checkpoints.md shows the parts. The resumed training ends with the same bits
// as the one that went on. An adapter is saved without the model that it adapts.

#include <zero/checkpoint/checkpoint.hpp>
#include <zero/zero.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace {

using Zero = zero::ZeroStage<2, zero::AdamW>;

constexpr std::size_t steps = 20;

std::vector<Zero::Registration> parameters() {
    return {{.name = "layer.weight", .elements = 4096, .group = 0},
            {.name = "layer.bias", .elements = 64, .group = 1}};
}

/// The groups of `parameters`, by number: biases do not decay, and learn twice as fast.
Zero::Options options() {
    return {.groups = {{.optimizer = {.weight_decay = 0.1F}},
                       {.optimizer = {.weight_decay = 0.0F}, .learning_rate_factor = 2.0}}};
}

void train_step(Zero& engine, std::size_t step) {
    engine.begin_step();
    for (auto const micro_step : engine.micro_steps(1)) {
        auto const gradients = engine.gradients(0);
        for (std::size_t parameter = 0; parameter < 2; ++parameter)
            for (float& gradient : gradients[parameter])
                gradient += static_cast<float>((step + micro_step + parameter) % 5) - 1.5F;
        engine.gradients_ready(0);
    }
    engine.step(0.01);
}

/// Trains the steps [begin, steps) and saves every 5 of them in the background.
void train(Zero& engine, std::size_t begin, std::string const& folder) {
    zero::CheckpointSaver saver(engine, folder); // after the engine: it is destroyed first
    for (std::size_t step = begin; step < steps; ++step) {
        train_step(engine, step);
        if ((step + 1) % 5 == 0)
            saver.start({.extras = {{"next_step", std::to_string(step + 1)}}, .keep_last = 2});
        saver.poll(); // publishes the checkpoint once all ranks have written
    }
    saver.wait(); // the last one; an error is thrown here; the destructor only reports it
}

/// Loads a checkpoint, and returns the number of the next step.
std::size_t resume(Zero& engine, std::string const& folder, std::string const& name) {
    auto const report = zero::load_checkpoint(engine, folder, {.name = name});
    return std::stoul(report.extras.at("next_step"));
}

std::vector<float> weights_of(Zero& engine) {
    std::vector<float> all(4096 + 64);
    engine.gather_to(all); // collective
    return all;
}

/// A model that stays as it is, and an adapter that is trained.
std::vector<Zero::Registration> adapted() {
    return {{.name = "block.weight", .elements = 1'000'000, .trainable = false},
            {.name = "block.adapter", .elements = 256}};
}

/// Saves the adapter alone, with its master weights and states.
std::string save_adapter(Zero& engine, std::string const& folder) {
    return zero::save_checkpoint(engine, folder,
                                 {.name = "small", .only = {.trainable = true}, .base = "zeros"});
}

std::uintmax_t bytes_in(std::filesystem::path const& folder) {
    std::uintmax_t bytes = 0;
    for (auto const& file : std::filesystem::directory_iterator(folder)) bytes += file.file_size();
    return bytes;
}

} // namespace

int main() {
    std::string folder = (std::filesystem::temp_directory_path() / "zero-XXXXXX").string();
    if (::mkdtemp(folder.data()) == nullptr) return 1;
    bool is_equal = true;
    zero::run_ranks(2, [&](zero::LoopbackCommunicator& communicator) {
        Zero first(communicator, parameters(), options());
        train(first, 0, folder);

        Zero second(communicator, parameters(), options());
        std::size_t const next_step = resume(second, folder, "step-00000015");
        for (std::size_t step = next_step; step < steps; ++step) train_step(second, step);
        auto const expected = weights_of(first);
        auto const found = weights_of(second);
        if (communicator.rank() == 0) is_equal = next_step == 15 && found == expected;

        Zero tuned(communicator, adapted());
        train_step(tuned, 0);
        zero::save_checkpoint(tuned, folder, {.name = "all"});
        save_adapter(tuned, folder);
        Zero resumed(communicator, adapted());
        zero::load_checkpoint(resumed, folder, {.name = "small"}); // over the same base
        if (communicator.rank() == 0) is_equal = is_equal && resumed.step_count() == 1;
    });
    std::printf("the resumed training %s\n", is_equal ? "ends with the same bits" : "differs");
    std::printf("bytes of a checkpoint: %ju; of the adapter alone: %ju\n",
                bytes_in(folder + "/all"), bytes_in(folder + "/small"));
    std::filesystem::remove_all(folder);
    return is_equal ? 0 : 1;
}
