// Four ranks fit a sine with a small network. In stage 2 each rank holds a quarter of the optimizer
// state and of the reduced gradients.

#include <zero/zero.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <vector>

// Write 3 to shard the parameters as well. Further policies follow in any order.
using Zero = zero::ZeroStage<2, zero::AdamW>;

constexpr int ranks = 4;
constexpr std::size_t width = 64, steps = 1000, micro_steps = 2;

/// Trains y = sum of output * tanh(slope * x + shift); returns the smoothed error of all ranks.
float train(zero::LoopbackCommunicator& communicator) {
    auto const rank = static_cast<std::size_t>(communicator.rank());
    std::vector<float> initial_slopes(width);
    for (std::size_t i = 0; i < width; ++i) initial_slopes[i] = std::sin(static_cast<float>(i + 1));

    // In order of use. Parameters without .initial start at zero. A unit is a set of parameters
    // that is used together, usually a layer: here unit 0 is the hidden layer, unit 1 the output.
    std::vector<Zero::Registration> const parameters{
        {.name = "slopes", .initial = initial_slopes.data(), .elements = width, .units = {0}},
        {.name = "shifts", .elements = width, .units = {0}},
        {.name = "outputs", .elements = width, .units = {1}},
    };
    // Collective: the ranks compare their models, and rank 0 broadcasts its values.
    Zero engine(communicator, parameters,
                {.gradient_clipping = 1.0F, .unused_parameters = zero::UnusedParameters::error});

    float smoothed_error = 0.0F;
    for (std::size_t step = 0; step < steps; ++step) {
        engine.begin_step();
        for (auto const micro_step : engine.micro_steps(micro_steps)) {
            std::size_t const sample = (step * micro_steps + micro_step) * ranks + rank;
            float const x = 3.0F * std::sin(static_cast<float>(sample));

            // Forward pass. A handle is indexed by parameter, in order of registration.
            auto const hidden_layer = engine.acquire(0);
            auto const output_layer = engine.acquire(1);
            auto const slopes = hidden_layer[0], shifts = hidden_layer[1];
            auto const outputs = output_layer[2];
            std::array<float, width> hidden{};
            float error = -std::sin(x);
            for (std::size_t i = 0; i < width; ++i) {
                hidden[i] = std::tanh(slopes[i] * x + shifts[i]);
                error += outputs[i] * hidden[i];
            }

            // Backward pass. Gradients are zero at first; add to them.
            auto const output_gradients = engine.gradients(1);
            for (std::size_t i = 0; i < width; ++i) output_gradients[2][i] += error * hidden[i];
            engine.gradients_ready(1); // its reduction overlaps with the rest of the backward pass
            auto const hidden_gradients = engine.gradients(0);
            for (std::size_t i = 0; i < width; ++i) {
                float const inner = error * outputs[i] * (1.0F - hidden[i] * hidden[i]);
                hidden_gradients[0][i] += inner * x;
                hidden_gradients[1][i] += inner;
            }
            engine.gradients_ready(0);
            smoothed_error += 0.01F * (std::fabs(error) - smoothed_error);
        }
        // Averages over ranks and micro-steps. Only enqueues; .report() would wait for it.
        engine.step(0.02 * (1.0 - static_cast<double>(step) / steps));
    }
    return zero::sum_over_ranks(communicator, smoothed_error) / ranks; // the same on all ranks
}

int main() {
    float error = 0.0F;
    zero::run_ranks(ranks, [&](zero::LoopbackCommunicator& communicator) {
        float const mean = train(communicator);
        if (communicator.rank() == 0) error = mean; // only one thread may write it
    });
    std::printf("mean error %.3f\n", static_cast<double>(error));
    return error < 0.05F ? 0 : 1;
}
