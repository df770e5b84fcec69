// A model whose parameters are separate tensors, and whose automatic differentiation frees each
// gradient soon after computing it. The engine copies updated parameters back into the tensors and
// takes each gradient as a transient span.

#include <zero/zero.hpp>

#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace {

constexpr int world = 3;
constexpr std::size_t layers = 4;
constexpr std::size_t steps = 300;

/// A tensor as a library might keep it: in its own memory on the heap.
struct Tensor {
    std::string name;
    std::vector<float> values;
};

/// y = x + sum over layers of gain * tanh(slope * x + shift), element by element. Each layer owns
/// its tensors.
struct Layer {
    Tensor gain, slope, shift;

    explicit Layer(std::size_t number, std::size_t width)
        : gain{"gain" + std::to_string(number), std::vector<float>(width)},
          slope{"slope" + std::to_string(number), std::vector<float>(width)},
          shift{"shift" + std::to_string(number), std::vector<float>(width)} {
        for (std::size_t i = 0; i < width; ++i)
            slope.values[i] = 1.0F + std::sin(static_cast<float>(number * width + i));
    }
};

/// Input of a sample, per element.
float input(std::size_t sample, std::size_t i) {
    return 2.0F * std::sin(static_cast<float>(sample * 31 + i));
}
/// The function that the model must learn.
float target(float x) {
    return x + 0.5F * std::tanh(2.0F * x + 0.5F);
}

} // namespace

int main() {
    using Zero = zero::ZeroStage<2, zero::AdamW>;
    constexpr std::size_t width = 50;
    std::vector<std::vector<float>> final_values(world); // the tensors of each rank
    std::vector<float> final_loss(world);
    zero::run_ranks(world, [&](zero::LoopbackCommunicator& communicator) {
        auto const rank = static_cast<std::size_t>(communicator.rank());
        std::vector<std::unique_ptr<Layer>> model;
        std::vector<Zero::Registration> parameters; // 3 per layer: 3 * layer + {0, 1, 2}
        for (std::size_t number = 0; number < layers; ++number) {
            model.push_back(std::make_unique<Layer>(number, width));
            for (Tensor* const tensor :
                 {&model.back()->gain, &model.back()->slope, &model.back()->shift})
                parameters.push_back({.name = tensor->name,
                                      .data = tensor->values.data(),
                                      .elements = width,
                                      .units = {number}});
        }
        Zero engine(communicator, parameters, {.storage = zero::Storage::scattered});
        for (std::size_t step = 0; step < steps; ++step) {
            std::vector<float> x(width), difference(width);
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(1)) {
                for (std::size_t i = 0; i < width; ++i) {
                    x[i] = input(step * world + rank, i);
                    difference[i] = x[i] - target(x[i]);
                }
                for (std::size_t number = 0; number < layers; ++number) {
                    // From here on the tensors of the layer are up to date.
                    auto const weights = engine.acquire(number);
                    Layer const& layer = *model[number];
                    for (std::size_t i = 0; i < width; ++i)
                        difference[i] +=
                            layer.gain.values[i]
                            * std::tanh(layer.slope.values[i] * x[i] + layer.shift.values[i]);
                }
                for (std::size_t number = layers; number-- > 0;) {
                    Layer const& layer = *model[number];
                    auto const gain = std::make_shared<std::vector<float>>(width);
                    // Gradients that live until the end of this block.
                    std::vector<float> slope(width), shift(width);
                    for (std::size_t i = 0; i < width; ++i) {
                        float const bent =
                            std::tanh(layer.slope.values[i] * x[i] + layer.shift.values[i]);
                        (*gain)[i] = difference[i] * bent;
                        shift[i] = difference[i] * layer.gain.values[i] * (1.0F - bent * bent);
                        slope[i] = shift[i] * x[i];
                    }
                    // Kept until it is reduced, not copied. Leases are planned all the same.
                    engine.hand_over(number, 3 * number, *gain, {}, gain);
                    engine.hand_over(number, 3 * number + 1, slope);
                    // Waits until both were read; then their memory may be freed.
                    engine.hand_over(number, 3 * number + 2, shift).synchronise();
                    engine.gradients_ready(number);
                }
            }
            engine.step(0.01);
            final_loss[rank] = 0.0F;
            for (float const d : difference) final_loss[rank] += d * d / static_cast<float>(width);
        }
        // Waits for the last update.
        engine.for_each_full_parameter([](std::size_t, std::span<float const>) {});
        for (auto const& layer : model)
            for (Tensor const* const tensor : {&layer->gain, &layer->slope, &layer->shift})
                final_values[rank].insert(final_values[rank].end(), tensor->values.begin(),
                                          tensor->values.end());
    });
    bool is_trained = true;
    for (std::size_t rank = 0; rank < world; ++rank) {
        std::printf("rank %zu: mean squared error %.5f\n", rank,
                    static_cast<double>(final_loss[rank]));
        is_trained =
            is_trained && final_loss[rank] < 0.01F && final_values[rank] == final_values[0];
    }
    std::printf("the tensors of all ranks are %s\n", is_trained ? "equal and trained" : "WRONG");
    return is_trained ? 0 : 1;
}
