#pragma once

#include "ops/optimizer_fixture.hpp"

#include <zero/ops/lion.hpp>

namespace zero::test {

struct LionFixture {
    using Optimizer = Lion;
    using Options = LionOptions;
    static constexpr char const* name = "Lion";
    static constexpr std::array rates{Field<Options>{"beta1", &Options::beta1},
                                      Field<Options>{"beta2", &Options::beta2}};
    static constexpr std::array factors{Field<Options>{"weight_decay", &Options::weight_decay}};

    static Options with_decay(double weight_decay) { return {.weight_decay = weight_decay}; }
    static std::vector<Run<Options>>
    mistakes() { // the size of a gradient does not matter, only a changed sign
        return {{.mistake = "beta1", .options = {.beta1 = 0.89, .weight_decay = 0.1}},
                {.mistake = "beta2", .options = {.beta2 = 0.98, .weight_decay = 0.1}},
                {.mistake = "weight decay", .options = with_decay(0.101)},
                {.mistake = "ascent instead of descent",
                 .options = with_decay(0.1),
                 .factor = -1.0 / Recorded::world}};
    }

    static Options odd() { return {.beta1 = 0.7, .beta2 = 0.8, .weight_decay = 0.3}; }
    static constexpr std::array trajectory{0.442500000000, 0.485862500000, 0.528574562500,
                                           0.570645944063};

    static double reference(Options const& options, double g, double p, double (&state)[1],
                            double learning_rate, int) {
        double const direction = options.beta1 * state[0] + (1.0 - options.beta1) * g;
        state[0] = options.beta2 * state[0] + (1.0 - options.beta2) * g;
        double const sign = direction == 0.0 ? 0.0 : std::copysign(1.0, direction);
        return p * (1.0 - learning_rate * options.weight_decay) - learning_rate * sign;
    }

    static void exact(Options const& options, float g, float& p, float (&state)[1],
                      double learning_rate, int) {
        auto const rate1 = static_cast<float>(1.0 - options.beta1);
        auto const rate2 = static_cast<float>(1.0 - options.beta2);
        float const c = std::fma(rate1, g, std::fma(-rate1, state[0], state[0]));
        float const sign = c > 0.0F ? 1.0F : c < 0.0F ? -1.0F : c;
        state[0] = std::fma(rate2, g, std::fma(-rate2, state[0], state[0]));
        auto const decay = static_cast<float>(learning_rate * options.weight_decay);
        p = p - std::fma(static_cast<float>(learning_rate), sign, rounded_product(decay, p));
    }
};

} // namespace zero::test
