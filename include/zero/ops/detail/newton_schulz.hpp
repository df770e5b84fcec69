#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "transpose.hpp"

#include <cstddef>
#include <utility>

namespace ZERO_NAMESPACE::detail {

/// @brief The quintic iteration with which Muon drives singular values to about 1 (Jordan et al.
/// 2024): X = a X + (b A + c A A) X, with A = X X^T.
///
/// A matrix with more rows than columns is transposed first, so that A is as small as possible.
struct NewtonSchulz {
    static constexpr int iterations = 5;
    static constexpr float a = 3.4445F;
    static constexpr float b = -4.7750F;
    static constexpr float c = 2.0315F;

    /// Size of the scratch space of `run` in floats: twice the matrix, and twice the square of its
    /// shorter side.
    static constexpr std::size_t scratch_floats(std::size_t rows, std::size_t columns) noexcept {
        std::size_t const shorter = smaller(rows, columns);
        return 2 * rows * columns + 2 * shorter * shorter;
    }

    /// @brief Runs the iteration in `scratch`.
    /// @param scratch `scratch_floats` elements; the first rows * columns are the matrix, whose
    /// norm is at most 1
    /// @param multiply runs a `MatrixProduct`
    /// @return the result, inside `scratch`
    template <class Multiply>
    static float const* run(float* scratch, std::size_t rows, std::size_t columns,
                            Multiply const& multiply) noexcept {
        std::size_t const n = rows * columns;
        bool const is_tall = rows > columns;
        std::size_t const shorter = smaller(rows, columns);
        std::size_t const longer = larger(rows, columns);
        float* x = scratch;
        float* next = scratch + n;
        float* const square = scratch + 2 * n;
        float* const polynomial = square + shorter * shorter;
        if (is_tall) {
            transpose(next, x, rows, columns);
            std::swap(x, next);
        }
        for (int iteration = 0; iteration < iterations; ++iteration) {
            multiply({.out = square,
                      .left = x,
                      .right = x,
                      .rows = shorter,
                      .columns = shorter,
                      .depth = longer,
                      .is_right_transposed = true,
                      .is_symmetric = true});
            multiply({.out = polynomial,
                      .left = square,
                      .right = square,
                      .rows = shorter,
                      .columns = shorter,
                      .depth = shorter,
                      .is_symmetric = true,
                      .scale = c,
                      .addend = square,
                      .addend_scale = b});
            multiply({.out = next,
                      .left = polynomial,
                      .right = x,
                      .rows = shorter,
                      .columns = longer,
                      .depth = shorter,
                      .addend = x,
                      .addend_scale = a});
            std::swap(x, next);
        }
        if (is_tall) {
            transpose(next, x, columns, rows);
            return next;
        }
        return x;
    }
};

} // namespace ZERO_NAMESPACE::detail
