#pragma once

#include <zero/ops/arithmetic.hpp>
#include <zero/ops/number.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

/// Compares an optimizer in float with the same rule in double, over recorded float gradients.
namespace zero::test {

struct Recorded {
    static constexpr std::size_t elements = 4096;
    static constexpr int steps = 20;
    static constexpr int world = 3; ///< the recorded gradients are sums over this many ranks

    Recorded() {
        std::mt19937 engine(20);
        std::normal_distribution<float> normal;
        for (std::size_t i = 0; i < elements; ++i) {
            parameters.push_back(0.02F * normal(engine));
        }
        for (int step = 0; step < steps; ++step) {
            float const size =
                0.03F / static_cast<float>(1 + step % 4); // the size of gradients changes;
                                                          // otherwise no decay rate would matter
            for (std::size_t i = 0; i < elements; ++i) {
                gradients.push_back(size * (normal(engine) + 0.5F));
            }
        }
    }

    [[nodiscard]] float gradient(int step, std::size_t i) const {
        return gradients[static_cast<std::size_t>(step) * elements + i];
    }

    std::vector<float> parameters;
    std::vector<float> gradients;
};

/// The settings of a run in float. A mistake differs from the truth in one of them.
template <class Options>
struct Run {
    char const* mistake = "none";
    Options options{};
    double learning_rate_factor = 1.0;
    double factor = 1.0 / Recorded::world;
    std::uint64_t first_step = 1; ///< number of the first step, for a bias correction
    std::size_t shift = 0;        ///< element i gets the gradient of element i + shift
};

struct Error {
    double relative = 0.0; ///< the largest |p - reference| / (2^-24 * (|reference| + sum of
                           ///< |reference update|)): the guarantee is at most 4
    double update = 0.0; ///< the largest (|p - reference| - one rounding of p per step) / (2^-24 *
                         ///< sum of |reference update|)
};

/// The worst element after 20 steps. The reference uses the true options.
template <class Fixture>
Error worst_error(typename Fixture::Optimizer::Options const& truth, double learning_rate,
                  Run<typename Fixture::Optimizer::Options> const& run) {
    using Optimizer = typename Fixture::Optimizer;
    static Recorded const data;
    Error worst;
    for (std::size_t i = 0; i < Recorded::elements; ++i) {
        double expected = static_cast<double>(data.parameters[i]);
        double moved = 0.0;
        double roundings = 0.0;
        float parameter = data.parameters[i];
        float state[Optimizer::states] = {};
        double reference_state[Optimizer::states] = {};
        for (int step = 0; step < Recorded::steps; ++step) {
            double const before = expected;
            double const gradient = static_cast<double>(data.gradient(step, i)) / Recorded::world;
            expected = Fixture::reference(truth, gradient, before, reference_state, learning_rate,
                                          step + 1);
            moved += std::fabs(expected - before);
            roundings += 0x1p-24 * std::fabs(expected);
            auto const hyper =
                Optimizer::hyper(run.options, learning_rate * run.learning_rate_factor,
                                 run.first_step + static_cast<std::uint64_t>(step));
            float const recorded = data.gradient(step, (i + run.shift) % Recorded::elements);
            Optimizer{}(ops::mul(recorded, static_cast<float>(run.factor)), parameter, state,
                        hyper);
        }
        double const error = std::fabs(static_cast<double>(parameter) - expected);
        worst.relative =
            std::max(worst.relative, error / (0x1p-24 * (std::fabs(expected) + moved)));
        worst.update = std::max(worst.update, (error - roundings) / (0x1p-24 * moved));
    }
    return worst;
}

} // namespace zero::test
