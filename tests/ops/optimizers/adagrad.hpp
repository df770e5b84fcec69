#pragma once

#include "ops/optimizer_fixture.hpp"

#include <zero/ops/adagrad.hpp>

namespace zero::test {

struct AdagradFixture {
    using Optimizer = Adagrad;
    using Options = AdagradOptions;
    static constexpr char const* name = "Adagrad";
    static constexpr std::array<Field<Options>, 0> rates{};
    static constexpr std::array factors{Field<Options>{"epsilon", &Options::epsilon},
                                        Field<Options>{"weight_decay", &Options::weight_decay}};

    static Options with_decay(double weight_decay) { return {.weight_decay = weight_decay}; }
    static std::vector<Run<Options>> mistakes() {
        return {{.mistake = "epsilon", .options = {.epsilon = 1e-5, .weight_decay = 0.1}},
                {.mistake = "weight decay", .options = with_decay(0.101)},
                {.mistake = "sum instead of mean", .options = with_decay(0.1), .factor = 1.0}};
    }

    static Options odd() { return {.epsilon = 1e-4, .weight_decay = 0.3}; }
    static constexpr std::array trajectory{0.450012496876, 0.495390301971, 0.481593643006,
                                           0.498468312497};

    static double reference(Options const& options, double g, double p, double (&state)[1],
                            double learning_rate, int) {
        double const d = g + options.weight_decay * p;
        state[0] += d * d;
        return p - learning_rate * d / (std::sqrt(state[0]) + options.epsilon);
    }

    static void exact(Options const& options, float g, float& p, float (&state)[1],
                      double learning_rate, int) {
        float const d = std::fma(static_cast<float>(options.weight_decay), p, g);
        state[0] = std::fma(d, d, state[0]);
        p = std::fma(static_cast<float>(-learning_rate),
                     d / (std::sqrt(state[0]) + static_cast<float>(options.epsilon)), p);
    }
};

} // namespace zero::test
