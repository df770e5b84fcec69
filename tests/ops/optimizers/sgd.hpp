#pragma once

#include "ops/optimizer_fixture.hpp"

#include <zero/ops/sgd.hpp>

namespace zero::test {

template <bool nesterov>
struct SgdFixture {
    using Optimizer = Sgd;
    using Options = SgdOptions;
    static constexpr char const* name = "Sgd";
    static constexpr std::array rates{Field<Options>{"momentum", &Options::momentum}};
    static constexpr std::array factors{Field<Options>{"weight_decay", &Options::weight_decay}};

    static Options with_decay(double weight_decay) {
        return {.weight_decay = weight_decay, .nesterov = nesterov};
    }
    static std::vector<Run<Options>> mistakes() {
        return {{.mistake = "momentum",
                 .options = {.momentum = 0.899, .weight_decay = 0.1, .nesterov = nesterov}},
                {.mistake = "the other momentum",
                 .options = {.weight_decay = 0.1, .nesterov = !nesterov}},
                {.mistake = "sum instead of mean", .options = with_decay(0.1), .factor = 1.0}};
    }

    static Options odd() { return {.momentum = 0.8, .weight_decay = 0.3, .nesterov = nesterov}; }
    static constexpr std::array<double, 4> trajectory =
        nesterov ? std::array{0.464000000000, 0.528672000000, 0.520453456000, 0.556170441488}
                 : std::array{0.480000000000, 0.506800000000, 0.514388000000, 0.537742580000};

    static double reference(Options const& options, double g, double p, double (&state)[1],
                            double learning_rate, int t) {
        double const d = g + options.weight_decay * p;
        state[0] = t == 1 ? d : options.momentum * state[0] + d;
        return p - learning_rate * (nesterov ? d + options.momentum * state[0] : state[0]);
    }

    static void exact(Options const& options, float g, float& p, float (&state)[1],
                      double learning_rate, int) {
        auto const momentum = static_cast<float>(options.momentum);
        float const d = std::fma(static_cast<float>(options.weight_decay), p, g);
        state[0] = std::fma(momentum, state[0], d);
        p = std::fma(static_cast<float>(-learning_rate),
                     nesterov ? std::fma(momentum, state[0], d) : state[0], p);
    }
};

using HeavyBallFixture = SgdFixture<false>;
using NesterovFixture = SgdFixture<true>;

} // namespace zero::test
