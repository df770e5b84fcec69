#pragma once

// Checks of the guarantees of every element-wise optimizer, over a fixture (optimizer_fixture.hpp).

#include "host/kernel_inputs.hpp"
#include "ops/minimal_number.hpp"
#include "ops/optimizer_fixture.hpp"
#include "support/catch.hpp"

#include <zero/core/error.hpp>
#include <zero/host/kernels.hpp>
#include <zero/host/update.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace zero::test {

/// One element with its states, which start at zero.
template <class Fixture>
struct Element {
    using Optimizer = typename Fixture::Optimizer;
    using Options = typename Fixture::Options;

    void step(Options const& options, float gradient, double learning_rate, int t) {
        Optimizer{}(gradient, parameter, state,
                    Optimizer::hyper(options, learning_rate, static_cast<std::uint64_t>(t)));
    }

    float parameter = 0.5F;
    float state[Optimizer::states] = {};
};

template <class Fixture>
void check_exact_operations() {
    Recorded const data;
    int wrong = 0;
    for (std::size_t i = 0; i < 1000; ++i) {
        Element<Fixture> found{.parameter = data.parameters[i]};
        Element<Fixture> expected = found;
        for (int t = 1; t <= 3; ++t) {
            float const gradient = data.gradient(t, i);
            found.step(Fixture::odd(), gradient, 0.01, t);
            Fixture::exact(Fixture::odd(), gradient, expected.parameter, expected.state, 0.01, t);
            wrong += found.parameter == expected.parameter ? 0 : 1;
            for (std::size_t s = 0; s < std::size(found.state); ++s) {
                wrong += found.state[s] == expected.state[s] ? 0 : 1;
            }
        }
    }
    CHECK(wrong == 0);
}

/// The tolerance is the float error of four steps. A learning rate that is larger by a thousandth
/// exceeds it by far.
template <class Fixture>
double trajectory_error(double learning_rate) {
    Element<Fixture> element;
    double worst = 0.0;
    for (int t = 1; t <= 4; ++t) {
        auto const index = static_cast<std::size_t>(t - 1);
        element.step(Fixture::odd(), trajectory_gradients[index], learning_rate, t);
        worst = std::max(
            worst, std::fabs(static_cast<double>(element.parameter) - Fixture::trajectory[index]));
    }
    return worst;
}

template <class Fixture>
void check_trajectory() {
    CHECK(trajectory_error<Fixture>(0.05) < 2e-7);
    CHECK(trajectory_error<Fixture>(0.05 * 1.001) > 1e-5);
}

// With the large learning rate, the updates outweigh the parameters. With a small one, rounding a
// large parameter in each of the 20 steps can alone exceed 4 * 2^-24 of it, in any implementation
// that keeps parameters in float.
inline constexpr double large_learning_rate = 0.3;
inline constexpr double promised_error = 4.0;

template <class Fixture>
void check_double_precision() {
    auto const truth = Fixture::with_decay(0.1);
    CHECK(worst_error<Fixture>(truth, large_learning_rate, {.options = truth}).relative
          <= promised_error);
    for (double const learning_rate : {1e-4, 1e-3, 1e-2}) {
        CAPTURE(learning_rate);
        CHECK(worst_error<Fixture>(truth, learning_rate, {.options = truth}).update
              <= promised_error);
    }
}

template <class Fixture>
void check_mistakes_are_found() {
    auto const truth = Fixture::with_decay(0.1);
    auto runs = Fixture::mistakes();
    runs.push_back({.mistake = "learning rate", .options = truth, .learning_rate_factor = 1.001});
    runs.push_back({.mistake = "gradient of the next element", .options = truth, .shift = 1});
    for (auto const& run : runs) {
        CAPTURE(run.mistake);
        CHECK(worst_error<Fixture>(truth, large_learning_rate, run).relative > promised_error);
    }
}

/// Steps over ordinary and special gradients through `host::update` and element by element. Returns
/// the number of values whose bits differ.
template <class Fixture, class G, class P, class M = float>
int wrong_bits(std::size_t n) {
    using Optimizer = typename Fixture::Optimizer;
    std::vector<M> master(n, from_float<M>(0.5F));
    std::vector<P> parameter(n);
    std::array<std::vector<float>, Optimizer::states> states;
    std::array<float*, Optimizer::states> pointers;
    for (std::size_t s = 0; s < states.size(); ++s) {
        states[s].resize(n);
        pointers[s] = states[s].data();
    }
    std::vector<Element<Fixture>> elements(n);
    int wrong = 0;
    for (int t = 1; t <= 3; ++t) {
        auto const gradient = kernel_inputs<G>(n, static_cast<std::uint32_t>(t));
        auto const hyper = Optimizer::hyper(Fixture::odd(), 0.01, static_cast<std::uint64_t>(t));
        host::update<Optimizer>(gradient.data(), master.data(), parameter.data(), pointers, n,
                                0.125F, hyper);
        auto expected_master = master;
        auto expected_parameter = parameter;
        auto expected_states = states;
        for (std::size_t i = 0; i < n; ++i) {
            elements[i].step(Fixture::odd(), ops::mul(to_float(gradient[i]), 0.125F), 0.01, t);
            expected_master[i] = from_float<M>(canonical(elements[i].parameter));
            expected_parameter[i] = from_float<P>(canonical(elements[i].parameter));
            elements[i].parameter = to_float(expected_master[i]);
            for (std::size_t s = 0; s < states.size(); ++s) {
                expected_states[s][i] = canonical(elements[i].state[s]);
            }
        }
        wrong +=
            same_bits(master, expected_master) && same_bits(parameter, expected_parameter) ? 0 : 1;
        for (std::size_t s = 0; s < states.size(); ++s) {
            wrong += same_bits(states[s], expected_states[s]) ? 0 : 1;
        }
    }
    return wrong;
}

template <class Fixture>
void check_packs() {
    for (auto const set : instruction_sets) {
        WithInstructionSet const scope(set);
        if (scope.is_supported()) {
            for (std::size_t const n : {0U, 1U, 7U, 8U, 63U, 64U, 65U, 1000U}) {
                CAPTURE(host::name_of(set), n);
                CHECK(wrong_bits<Fixture, float, float>(n) == 0);
                CHECK(wrong_bits<Fixture, float, bfloat16>(n) == 0);
                CHECK(wrong_bits<Fixture, float16, float16, float16>(n) == 0);
            }
        }
    }
}

/// With `Minimal`, only the functions of `ops` compile.
template <class Fixture>
void check_functor_needs_only_ops() {
    using Optimizer = typename Fixture::Optimizer;
    Element<Fixture> element;
    Minimal parameter(element.parameter);
    auto const run = [&]<std::size_t... S>(std::index_sequence<S...>) {
        Minimal state[] = {Minimal(0.0F * static_cast<float>(S))...};
        for (int t = 1; t <= 3; ++t) {
            float const gradient = trajectory_gradients[static_cast<std::size_t>(t)];
            element.step(Fixture::odd(), gradient, 0.1, t);
            Optimizer{}(Minimal(gradient), parameter, state,
                        Optimizer::hyper(Fixture::odd(), 0.1, static_cast<std::uint64_t>(t)));
            CHECK(parameter.value() == element.parameter);
            CHECK(((state[S].value() == element.state[S]) && ...));
        }
    };
    run(std::make_index_sequence<Optimizer::states>{});
}

template <class Fixture>
void check_zero_gradient() {
    Element<Fixture> element;
    Element<Fixture> decayed;
    for (int t = 1; t <= 3; ++t) {
        float const before = decayed.parameter;
        element.step(Fixture::with_decay(0.0), 0.0F, 0.1, t);
        decayed.step(Fixture::with_decay(0.1), 0.0F, 0.1, t);
        CHECK(element.parameter == 0.5F);
        for (float const state : element.state) {
            CHECK(state == 0.0F);
        }
        CHECK(decayed.parameter > 0.0F);
        CHECK(decayed.parameter < before);
    }
}

template <class Fixture>
void check_zero_learning_rate() {
    Element<Fixture> still;
    Element<Fixture> moving;
    still.step(Fixture::odd(), 0.25F, 0.0, 1);
    moving.step(Fixture::odd(), 0.25F, 0.1, 1);
    CHECK(still.parameter == 0.5F);
    CHECK(moving.parameter < 0.5F);
    for (std::size_t s = 0; s < std::size(still.state);
         ++s) { // nevertheless, the states follow the gradient
        CHECK(still.state[s] != 0.0F);
        CHECK(still.state[s] == moving.state[s]);
    }
}

/// A NaN gradient reaches only the parameter and the states of its own element.
template <class Fixture>
void check_nan_gradient() {
    using Optimizer = typename Fixture::Optimizer;
    constexpr std::size_t n = 19;
    auto const hyper = Optimizer::hyper(Fixture::odd(), 0.1, 1);
    Element<Fixture> other;
    other.step(Fixture::odd(), 0.25F, 0.1, 1);
    for (auto const set : instruction_sets) {
        WithInstructionSet const scope(set);
        if (!scope.is_supported()) {
            continue;
        }
        for (std::size_t const place :
             {0U, 5U, 18U}) { // the last one is in the remainder after the packs
            CAPTURE(host::name_of(set), place);
            std::vector<float> gradient(n, 0.25F);
            gradient[place] = std::numeric_limits<float>::quiet_NaN();
            std::vector<float> parameter(n, 0.5F);
            std::array<std::vector<float>, Optimizer::states> states;
            std::array<float*, Optimizer::states> pointers;
            for (std::size_t s = 0; s < states.size(); ++s) {
                states[s].resize(n);
                pointers[s] = states[s].data();
            }
            host::update<Optimizer>(gradient.data(), parameter.data(), static_cast<float*>(nullptr),
                                    pointers, n, 1.0F, hyper);
            int wrong = 0;
            for (std::size_t i = 0; i < n; ++i) {
                auto const is_as = [&](float found, float expected) {
                    return i == place ? std::isnan(found) : found == expected;
                };
                wrong += is_as(parameter[i], other.parameter) ? 0 : 1;
                for (std::size_t s = 0; s < states.size(); ++s) {
                    wrong += is_as(states[s][i], other.state[s]) ? 0 : 1;
                }
            }
            CHECK(wrong == 0);
        }
    }
}

template <class Fixture>
void check_validation() {
    using Optimizer = typename Fixture::Optimizer;
    using Options = typename Fixture::Options;
    auto const with = [](Field<Options> const& field, double value) {
        Options options;
        options.*field.member = value;
        return options;
    };
    auto const message = [](Field<Options> const& field) {
        return std::string("zero::") + Fixture::name + ": " + field.name + " is ";
    };
    double const nan = std::numeric_limits<double>::quiet_NaN();
    double const infinity = std::numeric_limits<double>::infinity();
    CHECK_NOTHROW(Optimizer::validate(Options{}));
    for (Field<Options> const& field : Fixture::rates) {
        CHECK_NOTHROW(Optimizer::validate(with(field, 0.0)));
        for (double const bad :
             {-0.1, 1.0, 1.5, nan, infinity, 1.0 - 1e-12}) { // the last one is 1 in float
            CHECK_THROWS_AS(Optimizer::validate(with(field, bad)), InvalidArgument);
            CHECK_THROWS_WITH(Optimizer::validate(with(field, bad)), contains_text(message(field)));
        }
        CHECK_THROWS_WITH(Optimizer::validate(with(field, 1.5)),
                          message(field) + "1.5; it must be at least 0 and less than 1.");
    }
    for (Field<Options> const& field : Fixture::factors) {
        CHECK_NOTHROW(Optimizer::validate(with(field, 0.0)));
        for (double const bad : {-1e-9, nan, infinity, 1e39}) {
            CHECK_THROWS_AS(Optimizer::validate(with(field, bad)), InvalidArgument);
            CHECK_THROWS_WITH(Optimizer::validate(with(field, bad)), contains_text(message(field)));
        }
        CHECK_THROWS_WITH(Optimizer::validate(with(field, -2.0)),
                          message(field) + "-2; it must be a finite float of at least 0.");
        if (field.name == std::string("epsilon")) { // a positive divisor must not round to 0
            CHECK_THROWS_WITH(
                Optimizer::validate(with(field, 1e-46)),
                message(field)
                    + "1e-46; it must be 0, or above 0 even when it is rounded to float.");
            CHECK_NOTHROW(Optimizer::validate(with(field, 1e-45)));
        } else {
            CHECK_NOTHROW(Optimizer::validate(with(field, 1e-46)));
        }
    }
}

} // namespace zero::test
