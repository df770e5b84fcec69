#pragma once

#include "ops/optimizer_fixture.hpp"

#include <zero/ops/adamw.hpp>

namespace zero::test {

struct AdamWFixture {
    using Optimizer = AdamW;
    using Options = AdamWOptions;
    static constexpr char const* name = "AdamW";
    static constexpr std::array rates{Field<Options>{"beta1", &Options::beta1},
                                      Field<Options>{"beta2", &Options::beta2}};
    static constexpr std::array factors{Field<Options>{"epsilon", &Options::epsilon},
                                        Field<Options>{"weight_decay", &Options::weight_decay}};

    static Options with_decay(double weight_decay) { return {.weight_decay = weight_decay}; }
    static std::vector<Run<Options>> mistakes() {
        return {{.mistake = "beta2", .options = {.beta2 = 0.998, .weight_decay = 0.1}},
                {.mistake = "sum instead of mean", .options = with_decay(0.1), .factor = 1.0},
                {.mistake = "bias correction of the next step",
                 .options = with_decay(0.1),
                 .first_step = 2}};
    }

    static Options odd() {
        return {.beta1 = 0.8, .beta2 = 0.9, .epsilon = 1e-4, .weight_decay = 0.3};
    }
    static constexpr std::array trajectory{0.442519992003, 0.465682632510, 0.476368126367,
                                           0.496290355712};

    static double reference(Options const& options, double g, double p, double (&state)[2],
                            double learning_rate, int t) {
        state[0] = options.beta1 * state[0] + (1.0 - options.beta1) * g;
        state[1] = options.beta2 * state[1] + (1.0 - options.beta2) * g * g;
        double const mean = state[0] / (1.0 - std::pow(options.beta1, t));
        double const square = state[1] / (1.0 - std::pow(options.beta2, t));
        return p * (1.0 - learning_rate * options.weight_decay)
               - learning_rate * mean / (std::sqrt(square) + options.epsilon);
    }

    static void exact(Options const& options, float g, float& p, float (&state)[2],
                      double learning_rate, int t) {
        float const ratio = exact_ratio(options, g, state, t);
        auto const decay = static_cast<float>(learning_rate * options.weight_decay);
        p = p
            - std::fma(exact_step_size(options, learning_rate, t), ratio,
                       rounded_product(decay, p));
    }

    // `Adam` documents the same arithmetic.

    static float exact_ratio(auto const& options, float g, float (&state)[2], int t) {
        auto const rate1 = static_cast<float>(1.0 - options.beta1);
        auto const beta2 = static_cast<float>(options.beta2);
        auto const rate2 = static_cast<float>(1.0 - options.beta2);
        double const volatile correction2 = static_cast<double>(rate2)
                                            * ((1.0 - small_power(static_cast<double>(beta2), t))
                                               / (1.0 - static_cast<double>(beta2)));
        auto const inverse_root = static_cast<float>(1.0 / std::sqrt(correction2));
        state[0] = std::fma(rate1, g, std::fma(-rate1, state[0], state[0]));
        state[1] = std::fma(beta2, state[1], rounded_product(rate2, rounded_product(g, g)));
        return state[0]
               / std::fma(inverse_root, std::sqrt(state[1]), static_cast<float>(options.epsilon));
    }

    static float exact_step_size(auto const& options, double learning_rate, int t) {
        auto const rate1 = static_cast<double>(static_cast<float>(1.0 - options.beta1));
        return static_cast<float>(learning_rate / (1.0 - small_power(1.0 - rate1, t)));
    }
};

} // namespace zero::test
