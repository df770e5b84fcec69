#pragma once

#include "zero/ops/adamw.hpp"
#include "zero/ops/sgd.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

/// The comparison of an optimizer in float with the same rule in double, over recorded float gradients. The reference is written after the
/// published algorithms, not after the library: other order of operations, `pow`, no fused operation.
namespace zero::test {

struct Recorded {
    static constexpr std::size_t elements = 4096;
    static constexpr int steps = 20;
    static constexpr int world = 3; ///< the recorded gradients are sums over so many ranks

    Recorded() {
        std::mt19937 engine(20);
        std::normal_distribution<float> normal;
        for (std::size_t i = 0; i < elements; ++i) {
            parameters.push_back(0.02F * normal(engine));
        }
        for (int step = 0; step < steps; ++step) {
            float const size = 0.03F / static_cast<float>(1 + step % 4); // gradients change their size, or no decay rate would matter
            for (std::size_t i = 0; i < elements; ++i) {
                gradients.push_back(size * (normal(engine) + 0.5F));
            }
        }
    }

    [[nodiscard]] float gradient(int step, std::size_t i) const { return gradients[static_cast<std::size_t>(step) * elements + i]; }

    std::vector<float> parameters;
    std::vector<float> gradients;
};

/// What a run does otherwise than the reference: nothing, or one of the mistakes that the comparison must find.
struct Mistake {
    double learning_rate_factor = 1.0;
    double beta2 = 0.999;
    double factor = 1.0 / Recorded::world;
    std::uint64_t first_step = 1; ///< number of the first step, for the bias correction
    std::size_t shift = 0;        ///< element i gets the gradient of element i + shift
};

struct Error {
    double relative = 0.0; ///< the largest |p - reference| / (2^-24 * (|reference| + sum of |reference update|)): the promise is at most 4
    double update = 0.0;   ///< the largest (|p - reference| - one rounding of p per step) / (2^-24 * sum of |reference update|)
};

template <class Optimizer, class Reference>
Error worst_error(Recorded const& data, typename Optimizer::Options const& options, double learning_rate, Mistake const& mistake,
                  Reference reference) {
    Error worst;
    for (std::size_t i = 0; i < Recorded::elements; ++i) {
        double expected = static_cast<double>(data.parameters[i]);
        double moved = 0.0;
        double roundings = 0.0;
        float parameter = data.parameters[i];
        float state[Optimizer::states] = {};
        double reference_state[2] = {};
        for (int step = 0; step < Recorded::steps; ++step) {
            double const before = expected;
            expected = reference(before, static_cast<double>(data.gradient(step, i)) / Recorded::world, reference_state, step + 1);
            moved += std::fabs(expected - before);
            roundings += 0x1p-24 * std::fabs(expected);
            auto const hyper = Optimizer::hyper(options, learning_rate * mistake.learning_rate_factor,
                                                mistake.first_step + static_cast<std::uint64_t>(step));
            float const recorded = data.gradient(step, (i + mistake.shift) % Recorded::elements);
            Optimizer{}(ops::mul(recorded, static_cast<float>(mistake.factor)), parameter, state, hyper);
        }
        double const error = std::fabs(static_cast<double>(parameter) - expected);
        worst.relative = std::max(worst.relative, error / (0x1p-24 * (std::fabs(expected) + moved)));
        worst.update = std::max(worst.update, (error - roundings) / (0x1p-24 * moved));
    }
    return worst;
}

inline Error adamw_error(double learning_rate, Mistake const& mistake = {}) {
    static Recorded const data;
    AdamWOptions const truth{.weight_decay = 0.1};
    AdamWOptions options = truth;
    options.beta2 = mistake.beta2;
    auto const reference = [&](double p, double g, double(&state)[2], int t) {
        state[0] = truth.beta1 * state[0] + (1.0 - truth.beta1) * g;
        state[1] = truth.beta2 * state[1] + (1.0 - truth.beta2) * g * g;
        double const mean = state[0] / (1.0 - std::pow(truth.beta1, t));
        double const square = state[1] / (1.0 - std::pow(truth.beta2, t));
        return p * (1.0 - learning_rate * truth.weight_decay) - learning_rate * mean / (std::sqrt(square) + truth.epsilon);
    };
    return worst_error<AdamW>(data, options, learning_rate, mistake, reference);
}

inline Error sgd_error(double learning_rate, bool nesterov, Mistake const& mistake = {}) {
    static Recorded const data;
    SgdOptions const options{.momentum = 0.9, .weight_decay = 0.1, .nesterov = nesterov};
    auto const reference = [&](double p, double g, double(&state)[2], int t) {
        double const d = g + options.weight_decay * p;
        state[0] = t == 1 ? d : options.momentum * state[0] + d;
        return p - learning_rate * (nesterov ? d + options.momentum * state[0] : state[0]);
    };
    return worst_error<Sgd>(data, options, learning_rate, mistake, reference);
}

} // namespace zero::test
