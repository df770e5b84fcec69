// The training loop of plain.cpp on four ranks under stage 3.
// docs/guides/existing_trainer.md, third step.

#include <zero/zero.hpp>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

using Zero = zero::ZeroStage<3, zero::AdamW>;

constexpr std::size_t rank_count = 4;

constexpr std::size_t width = 32, depth = 3, batch = 16, steps = 300;

struct Tensor {
    std::vector<float> value;
    explicit Tensor(std::size_t elements) : value(elements) {}
};

struct Layer {
    Tensor weight{width * width}, bias{width};
};

using Batch = std::vector<float>; // samples of `width` numbers each
using Values = std::span<float const>;

/// y = x + tanh(weight x + bias), sample by sample.
Batch forward(Values weight, Values bias, Batch const& x) {
    Batch y = x;
    for (std::size_t i = 0; i < y.size(); ++i) {
        float sum = bias[i % width];
        for (std::size_t k = 0; k < width; ++k)
            sum += weight[i % width * width + k] * x[i / width * width + k];
        y[i] += std::tanh(sum);
    }
    return y;
}

/// Adds to the gradients of a layer. Turns the gradient of its output into that of its input.
void backward(Values weight, Batch const& x, Batch const& y, Batch& gradient,
              std::span<float> weight_gradient, std::span<float> bias_gradient) {
    Batch const output_gradient = gradient;
    for (std::size_t i = 0; i < y.size(); ++i) {
        float const inner = output_gradient[i] * (1.0F - (y[i] - x[i]) * (y[i] - x[i]));
        bias_gradient[i % width] += inner;
        for (std::size_t k = 0; k < width; ++k) {
            weight_gradient[i % width * width + k] += inner * x[i / width * width + k];
            gradient[i / width * width + k] += inner * weight[i % width * width + k];
        }
    }
}

/// Gradient of the mean squared error; adds that error to `loss`.
Batch compare(Batch const& x, Batch const& y, float& loss) {
    Batch gradient = y;
    for (std::size_t i = 0; i < y.size(); ++i) {
        gradient[i] -= x[i] + std::sin(x[i / width * width + (i + 1) % width]);
        loss += gradient[i] * gradient[i] / static_cast<float>(y.size());
        gradient[i] *= 2.0F / static_cast<float>(y.size());
    }
    return gradient;
}

Batch samples(std::size_t first, std::size_t count) {
    Batch x(count * width);
    for (std::size_t i = 0; i < x.size(); ++i)
        x[i] = std::sin(static_cast<float>(first * width + i));
    return x;
}

std::vector<Layer> new_model() {
    std::vector<Layer> model(depth);
    for (std::size_t layer = 0; layer < depth; ++layer) {
        for (std::size_t i = 0; i < width * width; ++i)
            model[layer].weight.value[i] = 0.3F * std::sin(static_cast<float>(7 * i + layer));
    }
    return model;
}

float train(zero::LoopbackCommunicator& communicator) {
    std::vector<Layer> model = new_model();
    std::vector<Zero::Registration> parameters;
    for (Layer& layer : model) {
        for (Tensor* const tensor : {&layer.weight, &layer.bias}) {
            parameters.push_back({.name = std::to_string(parameters.size()),
                                  .initial = tensor->value.data(),
                                  .elements = tensor->value.size(),
                                  .units = {parameters.size() / 2}}); // a unit is a layer
        }
    }
    Zero engine(communicator, parameters,
                {.unused_parameters = zero::UnusedParameters::error}); // finds forgotten calls
    model.clear(); // the engine has copied the values and holds a shard of them
    auto const rank = static_cast<std::size_t>(communicator.rank());
    float loss = 0.0F; // the mean of the last ten steps
    for (std::size_t step = 0; step < steps; ++step) {
        engine.begin_step();
        engine.begin_micro_step(zero::MicroStep::last);
        std::vector<Batch> activations{
            samples(step * batch + rank * batch / rank_count, batch / rank_count)};
        for (std::size_t number = 0; number < depth; ++number) {
            auto const weights = engine.acquire(number); // gathered for as long as `weights` lives
            activations.push_back(
                forward(weights[2 * number], weights[2 * number + 1], activations.back()));
        }
        float error = 0.0F;
        Batch gradient = compare(activations.front(), activations.back(), error);
        for (std::size_t number = depth; number-- > 0;) {
            auto const weights = engine.acquire(number);
            auto const gradients = engine.gradients(number);
            backward(weights[2 * number], activations[number], activations[number + 1], gradient,
                     gradients[2 * number], gradients[2 * number + 1]);
            engine.gradients_ready(number); // reduced while the layers below compute, then freed
        }
        engine.end_micro_step();
        engine.step(0.01); // averages the gradients over the ranks and updates
        if (step + 10 >= steps) loss += error / 10.0F;
    }
    if (rank == 0)
        std::printf("model states: %zu bytes on rank 0\n",
                    engine.memory_plan().model_state_bytes());
    return zero::sum_over_ranks(communicator, loss) / rank_count; // of all parts of the batch
}

int main() {
    float loss = 0.0F;
    zero::run_ranks(rank_count, [&](zero::LoopbackCommunicator& communicator) {
        float const mean = train(communicator);
        if (communicator.rank() == 0) loss = mean; // only one thread may write it
    });
    std::printf("loss %.9f\n", static_cast<double>(loss));
    return loss < 0.05F ? 0 : 1;
}
