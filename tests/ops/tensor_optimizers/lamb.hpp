#pragma once

#include "ops/optimizers/adamw.hpp"
#include "ops/tensor_optimizer_fixture.hpp"

#include <zero/ops/detail/lamb_steps.hpp>
#include <zero/ops/lamb.hpp>

#include <cmath>

namespace zero::test {

struct LambFixture {
    using Optimizer = Lamb;
    using Options = LambOptions;
    static constexpr char const* name = "Lamb";
    static constexpr std::array rates{Field<Options>{"beta1", &Options::beta1},
                                      Field<Options>{"beta2", &Options::beta2}};
    static constexpr std::array factors{Field<Options>{"epsilon", &Options::epsilon},
                                        Field<Options>{"weight_decay", &Options::weight_decay}};
    static constexpr double tolerance = 1e-6;

    struct Rule {
        char const* mistake = "none";
        Options options{};
        bool has_trust_ratio = true;
        bool decays_in_norm = true;
    };

    static Options odd() {
        return {.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-4, .weight_decay = 0.3};
    }
    static Options without_decay() { return {.weight_decay = 0.0}; }
    static Rule truth() { return {.options = odd()}; }
    static std::vector<Rule> mistakes() {
        std::vector<Rule> rules(4, truth());
        rules[0].mistake = "trust ratio 1";
        rules[0].has_trust_ratio = false;
        rules[1].mistake = "norm of the direction without weight decay";
        rules[1].decays_in_norm = false;
        rules[2].mistake = "beta2";
        rules[2].options.beta2 = 0.9501;
        rules[3].mistake = "weight decay";
        rules[3].options.weight_decay = 0.301;
        return rules;
    }

    static void reference(Rule const& rule, Shape const&, std::vector<double> const& g,
                          std::vector<double>& p, std::vector<double> (&state)[2],
                          double learning_rate, int t) {
        Options const& options = rule.options;
        std::vector<double> update(p.size());
        std::vector<double> measured(p.size());
        for (std::size_t i = 0; i < p.size(); ++i) {
            state[0][i] = options.beta1 * state[0][i] + (1.0 - options.beta1) * g[i];
            state[1][i] = options.beta2 * state[1][i] + (1.0 - options.beta2) * g[i] * g[i];
            double const mean = state[0][i] / (1.0 - std::pow(options.beta1, t));
            double const square = state[1][i] / (1.0 - std::pow(options.beta2, t));
            double const direction = mean / (std::sqrt(square) + options.epsilon);
            update[i] = direction + options.weight_decay * p[i];
            measured[i] = rule.decays_in_norm ? update[i] : direction;
        }
        double const ratio =
            rule.has_trust_ratio ? trust_ratio(long_norm(p), long_norm(measured)) : 1.0;
        for (std::size_t i = 0; i < p.size(); ++i) {
            p[i] -= learning_rate * ratio * update[i];
        }
    }

    static void exact(Options const& options, Shape const&, std::vector<float> const& g,
                      std::vector<float>& p, std::vector<float> (&state)[2], double learning_rate,
                      int t) {
        std::vector<float> update(p.size());
        for (std::size_t i = 0; i < p.size(); ++i) {
            float element[2] = {state[0][i], state[1][i]};
            float const direction = AdamWFixture::exact_ratio(options, g[i], element, t);
            state[0][i] = element[0];
            state[1][i] = element[1];
            auto const decay = static_cast<float>(options.weight_decay);
            update[i] = std::fma(AdamWFixture::exact_step_size(options, 1.0, t), direction,
                                 rounded_product(decay, p[i]));
        }
        auto const step_size =
            static_cast<float>(learning_rate * trust_ratio(long_norm(p), long_norm(update)));
        for (std::size_t i = 0; i < p.size(); ++i) {
            p[i] = std::fma(-step_size, update[i], p[i]);
        }
    }

    static double trust_ratio(double weights, double update) {
        return weights == 0.0 || update == 0.0 ? 1.0 : weights / update;
    }
};

} // namespace zero::test
