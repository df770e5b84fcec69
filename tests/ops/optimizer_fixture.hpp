#pragma once

// What the conformance suite knows about one optimizer. A new one needs a fixture like those in
// tests/ops/optimizers, written after the published algorithm and the header's comment, not after
// its code:
//
//     struct Fixture {
//         using Optimizer = ...;
//         static constexpr char const* name;                  // as errors print it
//         static constexpr std::array<Field<Options>, n> rates;    // options in [0, 1)
//         static constexpr std::array<Field<Options>, n> factors;  // options that are finite and
//         not negative static Options with_decay(double weight_decay);     // else defaults;
//         without a decay, a zero gradient changes nothing static std::vector<Run<Options>>
//         mistakes();        // beside with_decay(0.1); each must be found static Options odd(); //
//         far from the defaults static constexpr std::array<double, 4> trajectory;  // with odd(),
//         worked out apart: from 0.5, learning rate 0.05, gradients as below static double
//         reference(Options, double g, double p, double (&state)[states], double learning_rate, int
//         t);   // in double; the next p static void exact(Options, float g, float& p, float
//         (&state)[states], double learning_rate, int t);           // each rounding as documented
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

/// a * b, stored, so that nothing fuses it with a sum.
inline float rounded_product(float a, float b) {
    float const volatile result = a * b;
    return result;
}

/// base^exponent for exponents of at most 3, of which there is only one order of multiplications.
inline double small_power(double base, int exponent) {
    double volatile result = 1.0;
    for (int i = 0; i < exponent; ++i) {
        result = result * base;
    }
    return result;
}

} // namespace zero::test
