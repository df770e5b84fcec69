#pragma once

// The interface of a fixture for the conformance suite of optimizers. A new optimizer needs a
// fixture as in tests/ops/optimizers. Write it from the published algorithm and the comment of the
// header, not from the code:
//
//     struct Fixture {
//         using Optimizer = ...;
//         // as errors print it
//         static constexpr char const* name;
//         // options in [0, 1)
//         static constexpr std::array<Field<Options>, n> rates;
//         // options that are finite and not negative
//         static constexpr std::array<Field<Options>, n> factors;
//         // defaults except for the decay; without one, a zero gradient changes nothing
//         static Options with_decay(double weight_decay);
//         // compared with with_decay(0.1); each must be found
//         static std::vector<Run<Options>> mistakes();
//         // far from the defaults
//         static Options odd();
//         // with odd(), computed independently: from 0.5, learning rate 0.05, gradients as below
//         static constexpr std::array<double, 4> trajectory;
//         // in double; returns the next p
//         static double reference(Options, double g, double p, double (&state)[states],
//                                 double learning_rate, int t);
//         // with each rounding as documented
//         static void exact(Options, float g, float& p, float (&state)[states],
//                           double learning_rate, int t);
//     };

#include "ops/parity.hpp"

#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

namespace zero::test {

/// An option that `validate` checks.
template <class Options>
struct Field {
    char const* name;
    double Options::*member;
};

inline constexpr std::array<float, 4> trajectory_gradients{0.25F, -1.0F, 0.125F, -0.5F};

/// a * b, stored to memory so that it is not fused with a sum.
inline float rounded_product(float a, float b) {
    float const volatile result = a * b;
    return result;
}

/// base^exponent for exponents up to 3, which have only one order of multiplications.
inline double small_power(double base, int exponent) {
    double volatile result = 1.0;
    for (int i = 0; i < exponent; ++i) {
        result = result * base;
    }
    return result;
}

} // namespace zero::test
