#pragma once

// The interface of a fixture for the conformance suite of optimizers of whole parameters. A new one
// needs a fixture as in tests/ops/tensor_optimizers/. Write it from the published algorithm and the
// comment of the header, not from the code:
//
//     struct Fixture {
//         using Optimizer = ...;
//         // as errors print it
//         static constexpr char const* name;
//         // options in [0, 1)
//         static constexpr std::array<Field<Options>, n> rates;
//         // options that are finite and not negative
//         static constexpr std::array<Field<Options>, n> factors;
//         // largest error of 20 steps in float, relative to the longest path of an element
//         static constexpr double tolerance;
//         // the settings of the reference
//         struct Rule { char const* mistake; Options options; ... };
//         // a zero gradient changes nothing
//         static Options without_decay();
//         // far from the defaults
//         static Rule truth();
//         // each must be found, in a matrix of 5 x 3
//         static std::vector<Rule> mistakes();
//         static void reference(Rule, Shape, std::vector<double> const& g, std::vector<double>& p,
//                               std::vector<double> (&state)[states], double learning_rate, int t);
//         static void exact(Options, Shape, std::vector<float> const& g, std::vector<float>& p,
//                           std::vector<float> (&state)[states], double learning_rate, int t);
//     };

#include "host/kernel_inputs.hpp"
#include "ops/optimizer_fixture.hpp"

#include <zero/host/tensor.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace zero::test {

struct Shape {
    std::size_t rows; ///< 0 if not a matrix
    std::size_t columns;

    [[nodiscard]] std::size_t elements() const { return rows == 0 ? columns : rows * columns; }
};

/// Shapes: not a matrix, one element, one row, one column, wide, tall and square. No pack, tile or
/// panel divides the sizes.
inline constexpr std::array<Shape, 9> shapes{
    {{0, 1}, {0, 300}, {1, 1}, {1, 9}, {9, 1}, {3, 5}, {5, 3}, {7, 40}, {13, 13}}};

inline std::vector<float> random_numbers(std::size_t n, std::uint32_t seed, float size) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(n);
    for (float& value : values) {
        value = size * normal(engine);
    }
    return values;
}

/// The square root of the sum of squares, computed differently from the library.
template <class T>
double long_norm(std::vector<T> const& values) {
    long double sum = 0.0L;
    for (T const value : values) {
        sum += static_cast<long double>(value) * static_cast<long double>(value);
    }
    return std::sqrt(static_cast<double>(sum));
}

/// One parameter in memory, updated by the host backend. Its scratch space is poisoned before each
/// step and guarded at its end.
template <class Optimizer, class M = float, class P = M>
struct HeldTensor {
    static constexpr float guard = 12345.0F;

    HeldTensor(Shape const& size, std::vector<float> const& values)
        : shape(size), parameter(values.size()),
          states(Optimizer::states, std::vector<float>(values.size())) {
        for (float const value : values) {
            master.push_back(from_float<M>(value));
        }
    }

    /// @return true if the update stayed inside its scratch space
    template <class G>
    bool step(typename Optimizer::Options const& options, std::vector<G> const& gradient,
              double learning_rate, int t, float factor = 1.0F) {
        MasterPointers<M, P> const weights{master.data(), parameter.data()};
        return step_of(weights, shape, states, options, gradient, learning_rate, t, factor);
    }

    template <class Weights, class G>
    static bool step_of(Weights const& weights, Shape const& size,
                        std::vector<std::vector<float>>& kept,
                        typename Optimizer::Options const& options, std::vector<G> const& gradient,
                        double learning_rate, int t, float factor) {
        std::vector<float> scratch(Optimizer::scratch_floats(size.rows, size.columns) + 64,
                                   std::numeric_limits<float>::quiet_NaN());
        std::fill(scratch.end() - 64, scratch.end(), guard);
        UpdateSlice<G, Weights, StatePointers<Optimizer::states, float>> slice;
        static_cast<Weights&>(slice) = weights;
        for (std::size_t state = 0; state < Optimizer::states; ++state) {
            slice.states[state] = kept[state].data();
        }
        slice.gradient = gradient.data();
        slice.elements = size.elements();
        slice.rows = size.rows;
        slice.scratch = scratch.data();
        Optimizer::update_tensor(
            host::Tensor(slice, UpdateDecision{.factor = factor}),
            Optimizer::hyper(options, learning_rate, static_cast<std::uint64_t>(t)));
        return std::count(scratch.end() - 64, scratch.end(), guard) == 64;
    }

    Shape shape;
    std::vector<M> master;
    std::vector<P> parameter;
    std::vector<std::vector<float>> states;
};

} // namespace zero::test
