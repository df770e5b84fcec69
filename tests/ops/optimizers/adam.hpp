#pragma once

#include "ops/optimizers/adamw.hpp"

#include <zero/ops/adam.hpp>

namespace zero::test {

struct AdamFixture {
    using Optimizer = Adam;
    using Options = AdamOptions;
    static constexpr char const* name = "Adam";
    static constexpr std::array rates{Field<Options>{"beta1", &Options::beta1},
                                      Field<Options>{"beta2", &Options::beta2}};
    static constexpr std::array factors{Field<Options>{"epsilon", &Options::epsilon},
                                        Field<Options>{"weight_decay", &Options::weight_decay}};

    static Options with_decay(double weight_decay) { return {.weight_decay = weight_decay}; }
    static std::vector<Run<Options>> mistakes() {
        return {{.mistake = "beta1", .options = {.beta1 = 0.899, .weight_decay = 0.1}},
                {.mistake = "weight decay", .options = with_decay(0.101)},
                {.mistake = "sum instead of mean", .options = with_decay(0.1), .factor = 1.0},
                {.mistake = "bias correction of the next step",
                 .options = with_decay(0.1),
                 .first_step = 2}};
    }

    static Options odd() {
        return {.beta1 = 0.8, .beta2 = 0.9, .epsilon = 1e-4, .weight_decay = 0.3};
    }
    static constexpr std::array trajectory{0.450012496876, 0.472101129267, 0.478211092682,
                                           0.494375209830};

    static double reference(Options const& options, double g, double p, double (&state)[2],
                            double learning_rate, int t) {
        double const d = g + options.weight_decay * p;
        state[0] = options.beta1 * state[0] + (1.0 - options.beta1) * d;
        state[1] = options.beta2 * state[1] + (1.0 - options.beta2) * d * d;
        double const mean = state[0] / (1.0 - std::pow(options.beta1, t));
        double const square = state[1] / (1.0 - std::pow(options.beta2, t));
        return p - learning_rate * mean / (std::sqrt(square) + options.epsilon);
    }

    static void exact(Options const& options, float g, float& p, float (&state)[2],
                      double learning_rate, int t) {
        float const d = std::fma(static_cast<float>(options.weight_decay), p, g);
        float const ratio = AdamWFixture::exact_ratio(options, d, state, t);
        p = std::fma(-AdamWFixture::exact_step_size(options, learning_rate, t), ratio, p);
    }
};

} // namespace zero::test
