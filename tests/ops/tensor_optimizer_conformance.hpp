#pragma once

// Checks of the guarantees of every optimizer of whole parameters, over a fixture
// (tensor_optimizer_fixture.hpp).

#include "ops/tensor_optimizer_fixture.hpp"
#include "support/catch.hpp"

#include <zero/core/error.hpp>
#include <zero/policy/optimizer.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace zero::test {

/// The largest |p - reference| after 20 steps, divided by the longest path of an element of the
/// reference.
template <class Fixture>
double tensor_error(Shape const& shape, typename Fixture::Rule const& rule) {
    using Optimizer = typename Fixture::Optimizer;
    constexpr double learning_rate = 0.05;
    std::size_t const n = shape.elements();
    auto const initial = random_numbers(n, 1, 0.5F);
    HeldTensor<Optimizer> found(shape, initial);
    std::vector<double> expected(initial.begin(), initial.end());
    std::vector<double> state[2] = {std::vector<double>(n), std::vector<double>(n)};
    std::vector<double> moved(n);
    for (int t = 1; t <= 20; ++t) {
        auto gradient = random_numbers(n, 100 + static_cast<std::uint32_t>(t),
                                       1.0F / static_cast<float>(1 + t % 4));
        found.step(Fixture::truth().options, gradient, learning_rate, t, 0.5F);
        std::vector<double> halved;
        for (float const value : gradient) {
            halved.push_back(0.5 * static_cast<double>(value));
        }
        auto const before = expected;
        Fixture::reference(rule, shape, halved, expected, state, learning_rate, t);
        for (std::size_t i = 0; i < n; ++i) {
            moved[i] += std::fabs(expected[i] - before[i]);
        }
    }
    double worst = 0.0;
    for (std::size_t i = 0; i < n; ++i) {
        worst = std::max(worst, std::fabs(static_cast<double>(found.master[i]) - expected[i]));
    }
    return worst / *std::max_element(moved.begin(), moved.end());
}

template <class Fixture>
void check_tensor_double_precision() {
    for (Shape const& shape : shapes) {
        CAPTURE(shape.rows, shape.columns);
        CHECK(tensor_error<Fixture>(shape, Fixture::truth()) < Fixture::tolerance);
    }
}

template <class Fixture>
void check_tensor_mistakes_are_found() {
    for (auto const& rule : Fixture::mistakes()) {
        CAPTURE(rule.mistake);
        CHECK(tensor_error<Fixture>({5, 3}, rule) > 3.0 * Fixture::tolerance);
    }
}

/// Three steps on each instruction set, with each rounding as documented in the header.
template <class Fixture>
void check_tensor_exact_operations() {
    using Optimizer = typename Fixture::Optimizer;
    for (auto const set : instruction_sets) {
        WithInstructionSet const scope(set);
        for (Shape const& shape : shapes) {
            CAPTURE(host::name_of(set), shape.rows, shape.columns);
            std::size_t const n = shape.elements();
            HeldTensor<Optimizer> found(shape, random_numbers(n, 1, 0.5F));
            auto expected = found.master;
            std::vector<float> state[2] = {std::vector<float>(n), std::vector<float>(n)};
            for (int t = 1; t <= 3 && scope.is_supported(); ++t) {
                auto const gradient = random_numbers(n, 100 + static_cast<std::uint32_t>(t), 1.0F);
                CHECK(found.step(Fixture::truth().options, gradient, 0.05, t));
                Fixture::exact(Fixture::truth().options, shape, gradient, expected, state, 0.05, t);
                CHECK(same_bits(found.master, expected));
                CHECK(same_bits(found.states[0], state[0]));
                CHECK(same_bits(found.states[1], state[1]));
            }
        }
    }
}

/// The arithmetic is in float for every storage type of the weights. They are rounded once, at the
/// end.
template <class Fixture, class M, class P>
void check_form(Shape const& shape) {
    using Optimizer = typename Fixture::Optimizer;
    auto const options = Fixture::truth().options;
    HeldTensor<Optimizer, M, P> found(shape, random_numbers(shape.elements(), 1, 0.5F));
    std::vector<float> state[2] = {std::vector<float>(shape.elements()),
                                   std::vector<float>(shape.elements())};
    int wrong = 0;
    for (int t = 1; t <= 3; ++t) {
        std::vector<bfloat16> gradient;
        std::vector<float> scaled;
        for (float const value :
             random_numbers(shape.elements(), 100 + static_cast<std::uint32_t>(t), 1.0F)) {
            gradient.push_back(from_float<bfloat16>(value));
            scaled.push_back(ops::mul(to_float(gradient.back()), 0.3F));
        }
        std::vector<float> expected;
        for (M const value : found.master) {
            expected.push_back(to_float(value));
        }
        found.step(options, gradient, 0.05, t, 0.3F);
        Fixture::exact(options, shape, scaled, expected, state, 0.05, t);
        for (std::size_t i = 0; i < expected.size(); ++i) {
            wrong += to_float(found.master[i]) == to_float(from_float<M>(expected[i])) ? 0 : 1;
            wrong += to_float(found.parameter[i]) == to_float(from_float<P>(expected[i])) ? 0 : 1;
        }
    }
    CHECK(wrong == 0);
}

template <class Fixture>
void check_tensor_forms() {
    for (Shape const& shape : shapes) {
        CAPTURE(shape.rows, shape.columns);
        check_form<Fixture, float, bfloat16>(shape);
        check_form<Fixture, float, float16>(shape);
        check_form<Fixture, bfloat16, bfloat16>(shape);
        check_form<Fixture, float16, float16>(shape);
    }
}

/// Split weights equal float master weights of bfloat16 parameters, bit for bit.
template <class Fixture>
void check_tensor_split() {
    using Optimizer = typename Fixture::Optimizer;
    using Held = HeldTensor<Optimizer, float, bfloat16>;
    for (auto const set : instruction_sets) {
        WithInstructionSet const scope(set);
        for (Shape const& shape : shapes) {
            CAPTURE(host::name_of(set), shape.rows, shape.columns);
            std::size_t const n = shape.elements();
            Held expected(shape, random_numbers(n, 1, 0.5F));
            std::vector<bfloat16> half(n);
            std::vector<std::uint16_t> remainder(n);
            std::vector<std::uint8_t> rounded_up((n + 7) / 8);
            for (std::size_t i = 0; i < n; ++i) {
                half[i] = from_float<bfloat16>(expected.master[i]);
                expected.master[i] = to_float(half[i]);
            }
            auto states = expected.states;
            for (int t = 1; t <= 3 && scope.is_supported(); ++t) {
                auto const gradient = random_numbers(n, 100 + static_cast<std::uint32_t>(t), 1.0F);
                expected.step(Fixture::truth().options, gradient, 0.05, t);
                Held::step_of(SplitPointers{half.data(), remainder.data(), rounded_up.data()},
                              shape, states, Fixture::truth().options, gradient, 0.05, t, 1.0F);
                int wrong = 0;
                for (std::size_t i = 0; i < n; ++i) {
                    wrong += join({half[i], remainder[i], (rounded_up[i / 8] >> i % 8 & 1U) != 0})
                                     == expected.master[i]
                                 ? 0
                                 : 1;
                }
                CHECK(wrong == 0);
                CHECK(states == expected.states);
            }
        }
    }
}

template <class Fixture>
void check_tensor_zero_gradient() {
    using Optimizer = typename Fixture::Optimizer;
    for (Shape const& shape : shapes) {
        CAPTURE(shape.rows, shape.columns);
        std::vector<float> const zeros(shape.elements());
        auto const initial = random_numbers(shape.elements(), 1, 0.5F);
        HeldTensor<Optimizer> still(shape, initial);
        auto const undecayed = Fixture::without_decay();
        HeldTensor<Optimizer> decayed(shape, initial);
        for (int t = 1; t <= 3; ++t) {
            still.step(undecayed, zeros, 0.05, t);
            decayed.step(Fixture::truth().options, zeros, 0.05, t);
        }
        CHECK(still.master == initial);
        CHECK(long_norm(decayed.master) < long_norm(initial));
        CHECK(long_norm(still.states[0]) + long_norm(still.states[1]) == 0.0);
    }
}

/// An optimizer that starts from zero weights follows the reference in double precision, which is
/// finite.
template <class Fixture>
void check_tensor_zero_weights() {
    using Optimizer = typename Fixture::Optimizer;
    for (Shape const& shape : shapes) {
        CAPTURE(shape.rows, shape.columns);
        std::size_t const n = shape.elements();
        HeldTensor<Optimizer> found(shape, std::vector<float>(n));
        auto const gradient = random_numbers(n, 100, 1.0F);
        found.step(Fixture::truth().options, gradient, 0.05, 1);
        std::vector<double> expected(n);
        std::vector<double> state[2] = {std::vector<double>(n), std::vector<double>(n)};
        Fixture::reference(Fixture::truth(), shape,
                           std::vector<double>(gradient.begin(), gradient.end()), expected, state,
                           0.05, 1);
        double worst = 0.0;
        for (std::size_t i = 0; i < n; ++i) {
            worst = std::max(worst, std::fabs(static_cast<double>(found.master[i]) - expected[i]));
        }
        CHECK(worst < Fixture::tolerance * long_norm(expected));
        CHECK(long_norm(expected) > 0.005);
    }
}

template <class Fixture>
void check_tensor_zero_learning_rate() {
    using Optimizer = typename Fixture::Optimizer;
    auto const initial = random_numbers(15, 1, 0.5F);
    HeldTensor<Optimizer> still({5, 3}, initial);
    HeldTensor<Optimizer> moving({5, 3}, initial);
    still.step(Fixture::truth().options, random_numbers(15, 2, 1.0F), 0.0, 1);
    moving.step(Fixture::truth().options, random_numbers(15, 2, 1.0F), 0.05, 1);
    CHECK(still.master == initial);
    CHECK(moving.master != initial);
    CHECK(still.states == moving.states); // nevertheless, the states follow the gradient
    CHECK(long_norm(still.states[0]) > 0.0);
}

/// An update of a parameter as a whole makes every element the canonical NaN.
template <class Fixture>
void check_tensor_nan_gradient() {
    using Optimizer = typename Fixture::Optimizer;
    for (auto const set : instruction_sets) {
        WithInstructionSet const scope(set);
        auto gradient = random_numbers(91, 2, 1.0F);
        gradient[45] = std::numeric_limits<float>::quiet_NaN();
        HeldTensor<Optimizer> found({7, 13}, random_numbers(91, 1, 0.5F));
        found.step(Fixture::truth().options, gradient, 0.05, 1);
        CHECK(same_bits(found.master, std::vector<float>(91, std::bit_cast<float>(0x7fc00000U))));
    }
}

template <class Fixture>
void check_tensor_validation() {
    using Optimizer = typename Fixture::Optimizer;
    using Options = typename Fixture::Options;
    auto const refuses = [](Field<Options> const& field, double value, char const* range) {
        Options options;
        options.*field.member = value;
        auto const message = std::string("zero::") + Fixture::name + ": " + field.name + " is ";
        CHECK_THROWS_WITH(Optimizer::validate(options),
                          contains_text(message) && contains_text(range));
    };
    CHECK_NOTHROW(Optimizer::validate(Options{}));
    CHECK_NOTHROW(Optimizer::validate(Fixture::truth().options));
    for (double const bad : {-0.1, 1.0, std::numeric_limits<double>::quiet_NaN(),
                             1.0 - 1e-12}) { // the last one is 1 in float
        for (Field<Options> const& field : Fixture::rates) {
            refuses(field, bad, "at least 0 and less than 1");
        }
    }
    for (double const bad : {-1e-9, std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN(), 1e39}) {
        for (Field<Options> const& field : Fixture::factors) {
            refuses(field, bad, "a finite float of at least 0");
        }
    }
}

} // namespace zero::test
