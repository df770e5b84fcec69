// Four ranks fit a sine with a small network. Stage 2: each holds a quarter of the optimizer state
// and of the reduced gradients.

#include <zero/zero.hpp>

#include <array>
#include <cmath>
#include <cstdio>
#include <vector>

using Zero = zero::ZeroStage<2, zero::AdamW>; // write 3 to shard the parameters, too; more policies
                                              // follow in any order

int main() {
    constexpr std::size_t width = 64;
    std::array<float, 4> error{}; // of each rank, smoothed
    zero::run_ranks(4, [&](zero::LoopbackCommunicator& communicator) {
        auto const rank = static_cast<std::size_t>(communicator.rank());
        std::vector<float> slopes(width);
        for (std::size_t i = 0; i < width; ++i) slopes[i] = std::sin(static_cast<float>(i + 1));
        std::vector<Zero::Registration> const parameters{
            {.name = "slopes",
             .data = slopes.data(),
             .elements = width,
             .units = {0}},                                      // in order of use
            {.name = "shifts", .elements = width, .units = {0}}, // zero at first
            {.name = "output", .elements = width, .units = {1}}};
        Zero engine(communicator, parameters,
                    {.gradient_clipping =
                         1.0F}); // collective: models are compared, the values of rank 0 broadcast
        for (std::size_t step = 0; step < 1000; ++step) {
            engine.begin_step();
            for (auto const micro_step :
                 engine.micro_steps(2)) { // the step averages over ranks and micro-steps
                float const x = 3.0F
                                * std::sin(static_cast<float>(step * 8 + micro_step * 4 + rank)),
                            target = std::sin(x);
                auto const first = engine.acquire(0), second = engine.acquire(1);
                std::array<float, width> hidden{};
                float difference = -target;
                for (std::size_t i = 0; i < width; ++i) {
                    hidden[i] = std::tanh(first[0][i] * x + first[1][i]);
                    difference += second[2][i] * hidden[i];
                }
                auto const output = engine.gradients(1)[2]; // zero at first; add to it
                for (std::size_t i = 0; i < width; ++i) output[i] += difference * hidden[i];
                engine.gradients_ready(
                    1); // its reduction overlaps with the rest of the backward pass
                auto const gradients = engine.gradients(0);
                for (std::size_t i = 0; i < width; ++i) {
                    float const inner = difference * second[2][i] * (1.0F - hidden[i] * hidden[i]);
                    gradients[0][i] += inner * x;
                    gradients[1][i] += inner;
                }
                engine.gradients_ready(0);
                error[rank] += 0.01F * (std::fabs(difference) - error[rank]);
            }
            engine.step(
                0.02
                * (1.0
                   - static_cast<double>(step) / 1000)); // enqueued; .report() would wait for it
        }
    });
    for (float const smoothed : error)
        std::printf("mean error %.3f\n", static_cast<double>(smoothed));
    return error[0] < 0.05F && error[1] < 0.05F && error[2] < 0.05F && error[3] < 0.05F ? 0 : 1;
}
