#pragma once

#include "ops/optimizers/adamw.hpp"
#include "ops/tensor_optimizer_fixture.hpp"

#include <zero/ops/detail/update_parts.hpp>
#include <zero/ops/muon.hpp>

#include <algorithm>
#include <cmath>

namespace zero::test {

struct MuonFixture {
    using Optimizer = Muon;
    using Options = MuonOptions;
    static constexpr char const* name = "Muon";
    static constexpr std::array rates{Field<Options>{"momentum", &Options::momentum}};
    static constexpr std::array factors{
        Field<Options>{"weight_decay", &Options::weight_decay},
        Field<Options>{"adamw_learning_rate_factor", &Options::adamw_learning_rate_factor}};
    static constexpr double tolerance = 1e-6;

    struct Rule {
        char const* mistake = "none";
        Options options{};
        int iterations = 5;
        bool is_nesterov = true;
        bool is_scaled = true;
        double b = -4.7750;
    };

    static Options odd() {
        return {.momentum = 0.8,
                .weight_decay = 0.3,
                .adamw = AdamWFixture::odd(),
                .adamw_learning_rate_factor = 0.5};
    }
    static Options without_decay() { return {.adamw = {.weight_decay = 0.0}}; }
    static Rule truth() { return {.options = odd()}; }
    static std::vector<Rule> mistakes() {
        std::vector<Rule> rules(7, truth());
        rules[0].mistake = "4 iterations";
        rules[0].iterations = 4;
        rules[1].mistake = "6 iterations";
        rules[1].iterations = 6;
        rules[2].mistake = "momentum without Nesterov's step";
        rules[2].is_nesterov = false;
        rules[3].mistake = "no scale for tall matrices";
        rules[3].is_scaled = false;
        rules[4].mistake = "another coefficient";
        rules[4].b = -4.7751;
        rules[5].mistake = "weight decay";
        rules[5].options.weight_decay = 0.301;
        rules[6].mistake = "momentum";
        rules[6].options.momentum = 0.801;
        return rules;
    }

    static void reference(Rule const& rule, Shape const& shape, std::vector<double> const& g,
                          std::vector<double>& p, std::vector<double> (&state)[2],
                          double learning_rate, int t) {
        Options const& options = rule.options;
        if (shape.rows == 0) {
            for (std::size_t i = 0; i < p.size(); ++i) {
                double element[2] = {state[0][i], state[1][i]};
                p[i] =
                    AdamWFixture::reference(options.adamw, g[i], p[i], element,
                                            learning_rate * options.adamw_learning_rate_factor, t);
                state[0][i] = element[0];
                state[1][i] = element[1];
            }
            return;
        }
        std::vector<double> x(p.size());
        for (std::size_t i = 0; i < p.size(); ++i) {
            state[0][i] = options.momentum * state[0][i] + g[i];
            x[i] = rule.is_nesterov ? g[i] + options.momentum * state[0][i] : state[0][i];
        }
        double const norm = long_norm(x);
        for (double& value : x) {
            value /= norm + 1e-7;
        }
        for (int iteration = 0; iteration < rule.iterations; ++iteration) {
            x = iterate(x, shape, rule.b);
        }
        double const scale = rule.is_scaled ? length_of(options, shape) : 1.0;
        for (std::size_t i = 0; i < p.size(); ++i) {
            p[i] -= learning_rate * (scale * x[i] + options.weight_decay * p[i]);
        }
    }

    /// Needs no transposition, because (X X^T)^k X is X (X^T X)^k. Computes y = X X^T X and z = X
    /// X^T y element by element.
    static std::vector<double> iterate(std::vector<double> const& x, Shape const& shape, double b) {
        auto const gram_times = [&](std::vector<double> const& y) {
            std::vector<double> z(x.size());
            for (std::size_t i = 0; i < shape.rows; ++i) {
                for (std::size_t k = 0; k < shape.rows; ++k) {
                    double gram = 0.0;
                    for (std::size_t j = 0; j < shape.columns; ++j) {
                        gram += x[i * shape.columns + j] * x[k * shape.columns + j];
                    }
                    for (std::size_t j = 0; j < shape.columns; ++j) {
                        z[i * shape.columns + j] += gram * y[k * shape.columns + j];
                    }
                }
            }
            return z;
        };
        std::vector<double> const cubic = gram_times(x);
        std::vector<double> const quintic = gram_times(cubic);
        std::vector<double> result(x.size());
        for (std::size_t i = 0; i < x.size(); ++i) {
            result[i] = 3.4445 * x[i] + b * cubic[i] + 2.0315 * quintic[i];
        }
        return result;
    }

    static void exact(Options const& options, Shape const& shape, std::vector<float> const& g,
                      std::vector<float>& p, std::vector<float> (&state)[2], double learning_rate,
                      int t) {
        if (shape.rows == 0) {
            for (std::size_t i = 0; i < p.size(); ++i) {
                float element[2] = {state[0][i], state[1][i]};
                AdamWFixture::exact(options.adamw, g[i], p[i], element,
                                    learning_rate * options.adamw_learning_rate_factor, t);
                state[0][i] = element[0];
                state[1][i] = element[1];
            }
            return;
        }
        auto const momentum = static_cast<float>(options.momentum);
        std::vector<float> x(p.size());
        for (std::size_t i = 0; i < p.size(); ++i) {
            state[0][i] = std::fma(momentum, state[0][i], g[i]);
            x[i] = std::fma(momentum, state[0][i], g[i]);
        }
        auto const inverse = static_cast<float>(1.0 / (long_norm(x) + 1e-7));
        for (float& value : x) {
            value = rounded_product(value, inverse);
        }
        bool const is_tall = shape.rows > shape.columns;
        Shape const turned = is_tall ? Shape{shape.columns, shape.rows} : shape;
        x = is_tall ? transposed(x, shape) : x;
        std::size_t const k = turned.rows;
        for (int iteration = 0; iteration < 5; ++iteration) {
            auto const gram = product(x, transposed(x, turned), k, turned.columns, k);
            auto polynomial = product(gram, gram, k, k, k);
            for (std::size_t i = 0; i < polynomial.size(); ++i) {
                polynomial[i] =
                    std::fma(2.0315F, polynomial[i], rounded_product(-4.7750F, gram[i]));
            }
            auto next = product(polynomial, x, k, k, turned.columns);
            for (std::size_t i = 0; i < next.size(); ++i) {
                next[i] = std::fma(1.0F, next[i], rounded_product(3.4445F, x[i]));
            }
            x = next;
        }
        x = is_tall ? transposed(x, turned) : x;
        auto const step_size = static_cast<float>(learning_rate * length_of(options, shape));
        auto const decay = static_cast<float>(learning_rate * options.weight_decay);
        for (std::size_t i = 0; i < p.size(); ++i) {
            p[i] = p[i] - std::fma(step_size, x[i], rounded_product(decay, p[i]));
        }
    }

    static double length_of(Options const& options, Shape const& shape) {
        auto const rows = static_cast<double>(shape.rows);
        auto const columns = static_cast<double>(shape.columns);
        return options.length == MuonLength::adamw_rms ? 0.2 * std::sqrt(std::max(rows, columns))
                                                       : std::sqrt(std::max(1.0, rows / columns));
    }

    static std::vector<float> transposed(std::vector<float> const& x, Shape const& shape) {
        std::vector<float> result(x.size());
        for (std::size_t i = 0; i < x.size(); ++i) {
            result[i % shape.columns * shape.rows + i / shape.columns] = x[i];
        }
        return result;
    }

    static std::vector<float> product(std::vector<float> const& left,
                                      std::vector<float> const& right, std::size_t rows,
                                      std::size_t depth, std::size_t columns) {
        std::vector<float> result(rows * columns);
        for (std::size_t i = 0; i < rows; ++i) {
            for (std::size_t j = 0; j < columns; ++j) {
                for (std::size_t k = 0; k < depth; ++k) {
                    result[i * columns + j] = std::fma(left[i * depth + k], right[k * columns + j],
                                                       result[i * columns + j]);
                }
            }
        }
        return result;
    }
};

/// Muon with steps of AdamW's size.
struct MuonRmsFixture : MuonFixture {
    static Options odd() {
        auto options = MuonFixture::odd();
        options.length = MuonLength::adamw_rms;
        return options;
    }
    static Rule truth() { return {.options = odd()}; }
    static std::vector<Rule> mistakes() {
        std::vector<Rule> rules(2, truth());
        rules[0].mistake = "no scale";
        rules[0].is_scaled = false;
        rules[1].mistake = "the other scale";
        rules[1].options.length = MuonLength::spectral;
        return rules;
    }
};

} // namespace zero::test
