#pragma once

// Trains a few steps and returns the weights. The unit that includes this file has included or
// imported the library.

#include <cstddef>
#include <span>
#include <vector>

static std::vector<float> train(int ranks) {
    using Zero =
        zero::ZeroStage<3, zero::Parameters<zero::bfloat16>, zero::DynamicLossScaler, zero::Adam>;
    std::vector<float> trained;
    zero::run_ranks(ranks, [&](zero::LoopbackCommunicator& communicator) {
        Zero engine(communicator,
                    std::vector<Zero::Registration>{{.name = "first", .elements = 130},
                                                    {.name = "second", .elements = 3}},
                    {.gradient_clipping = 1.0F});
        for (int step = 0; step < 3; ++step) {
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(2)) {
                auto const weights = engine.acquire(0);
                auto const gradients = engine.gradients(0);
                float const target = static_cast<float>(communicator.rank() + step) + 0.5F
                                     + static_cast<float>(micro_step);
                for (std::size_t parameter = 0; parameter < 2; ++parameter) {
                    for (std::size_t i = 0; i < weights[parameter].size(); ++i) {
                        gradients[parameter][i] =
                            zero::from_float<zero::bfloat16>(zero::to_float(weights[parameter][i])
                                                             - target * static_cast<float>(i + 1));
                    }
                }
                engine.gradients_ready(0);
            }
            engine.step(0.01);
        }
        engine.for_each_full_parameter([&](std::size_t, std::span<zero::bfloat16 const> values) {
            for (zero::bfloat16 const value : values) {
                if (communicator.rank() == 0) {
                    trained.push_back(zero::to_float(value));
                }
            }
        });
    });
    return trained;
}
