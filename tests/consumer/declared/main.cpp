// Trains with a stage that another unit defines.

#include "stage.hpp"

#include <cstdio>
#include <vector>

int main() {
    float trained = 0.0F;
    zero::run_ranks(2, [&](zero::LoopbackCommunicator& communicator) {
        Zero engine(communicator,
                    std::vector<Zero::Registration>{{.name = "weight", .elements = 3}});
        engine.begin_step();
        for (auto const micro_step : engine.micro_steps(1)) {
            engine.gradients(0)[0][0] = 1.0F;
            engine.gradients_ready(0);
        }
        engine.step(0.5);
        engine.for_each_full_parameter([&](std::size_t, std::span<float const> values) {
            if (communicator.rank() == 0) {
                trained = values[0];
            }
        });
    });
    if (trained != -0.5F) { // Lion moves by the learning rate, against the sign of the gradient
        std::printf("the weight is %g\n", static_cast<double>(trained));
        return 1;
    }
    std::printf("zero %d.%d.%d\n", zero::version_major, zero::version_minor, zero::version_patch);
}
