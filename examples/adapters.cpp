// Two ranks train a matrix in stage 3, freeze it, train low-rank adapters beside it, merge them,
// and train all weights again: in one engine, without a file. docs/guides/recipes.md shows the code
// between the trainings.

#include <zero/stage/gathered_parameters.hpp>
#include <zero/stage/live_changes.hpp>
#include <zero/zero.hpp>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <span>
#include <vector>

using Zero = zero::ZeroStage<3, zero::AdamW>;

constexpr std::size_t width = 48, rank_of_update = 4, samples = 16;
constexpr float scale = 0.5F;

/// A number in [-1, 1).
float noise(std::size_t a, std::size_t b) {
    return std::sin(static_cast<float>(a * 131 + b * 71 + a * b + 1));
}

/// Adds scale * b * a, of low rank, to a square matrix.
void add_update(std::span<float> matrix, std::span<float const> b, std::span<float const> a) {
    for (std::size_t row = 0; row < width; ++row)
        for (std::size_t k = 0; k < rank_of_update; ++k)
            for (std::size_t column = 0; column < width; ++column)
                matrix[row * width + column] +=
                    scale * b[row * rank_of_update + k] * a[k * width + column];
}

/// Fits matrix * x to some y, and returns the mean error of the last step.
/// @param has_adapters whether they are trained in place of the matrix
double train(Zero& engine, int steps, bool has_adapters) {
    auto const rank = static_cast<std::size_t>(engine.communicator().rank());
    double sum = 0.0;
    for (int step = 0; step < steps; ++step) {
        sum = 0.0;
        engine.begin_step();
        for ([[maybe_unused]] auto const micro_step : engine.micro_steps(1)) {
            auto const weights = engine.acquire(0);
            std::vector<float> matrix(weights[0].begin(), weights[0].end());
            if (has_adapters) add_update(matrix, weights[2], weights[1]);
            std::vector<float> slope(width * width); // of the matrix
            for (std::size_t sample = rank; sample < samples; sample += 2)
                for (std::size_t row = 0; row < width; ++row) {
                    float error = -noise(sample + 9, row);
                    for (std::size_t column = 0; column < width; ++column)
                        error += matrix[row * width + column] * noise(sample, column);
                    sum += static_cast<double>(std::fabs(error));
                    for (std::size_t column = 0; column < width; ++column)
                        slope[row * width + column] += error * noise(sample, column);
                }
            auto const gradients = engine.gradients(0);
            for (std::size_t i = 0; i < width * width; ++i) {
                std::size_t const row = i / width, column = i % width;
                if (!has_adapters) gradients[0][i] += slope[i];
                for (std::size_t k = 0; has_adapters && k < rank_of_update; ++k) {
                    std::size_t const in_a = k * width + column, in_b = row * rank_of_update + k;
                    gradients[1][in_a] += scale * slope[i] * weights[2][in_b];
                    gradients[2][in_b] += scale * slope[i] * weights[1][in_a];
                }
            }
            engine.gradients_ready(0);
        }
        engine.step(0.01);
    }
    return zero::sum_over_ranks(engine.communicator(), sum) / (samples * width);
}

void add_adapters(Zero& engine) {
    auto const start = [](std::size_t begin, std::span<float> values) {
        for (float& value : values) value = noise(begin++, 5);
    };
    zero::set_trainable(engine, {"proj"}, false); // its master weights and states are freed
    zero::add_parameters(engine, {{.name = "proj.lora_a",
                                   .shape = {rank_of_update, width},
                                   .initialise = start,
                                   .is_deterministic = true}, // each rank fills what it owns
                                  {.name = "proj.lora_b", .shape = {width, rank_of_update}}});
}

void merge_adapters(Zero& engine) {
    zero::set_trainable(engine, {"proj"}, true); // first, so that master weights get the product
    {
        auto merged = zero::gather(engine, {"proj", "proj.lora_a", "proj.lora_b"},
                                   zero::Gather::all_write_equally); // only hashes are sent
        add_update(merged.writable("proj"), merged.values("proj.lora_b"),
                   merged.values("proj.lora_a"));
        merged.commit();
    }
    zero::remove_parameters(engine, {"proj.lora_a", "proj.lora_b"});
}

int main() {
    bool is_right = false;
    zero::run_ranks(2, [&](zero::LoopbackCommunicator& communicator) {
        Zero engine(communicator,
                    std::vector<Zero::Registration>{{.name = "proj", .shape = {width, width}}});
        double const first = train(engine, 40, false);
        add_adapters(engine);
        double const adapted = train(engine, 40, true);
        merge_adapters(engine);
        double const merged = train(engine, 1, false);
        double const last = train(engine, 40, false);
        if (communicator.rank() != 0) return;
        std::printf("error %.4f, with adapters %.4f, merged %.4f, at the end %.4f\n", first,
                    adapted, merged, last);
        is_right = adapted < 0.9 * first && merged < 1.05 * adapted && last < 0.9 * merged;
    });
    return is_right ? 0 : 1;
}
