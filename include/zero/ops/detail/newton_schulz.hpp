#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/host_device.hpp"
#include "../arithmetic.hpp"

#include <concepts>
#include <cstddef>
#include <utility>

namespace ZERO_NAMESPACE::detail {

/// @brief Transposes a rows x columns matrix: out[j][i] = in[i][j]. Works in blocks that fit into
/// the L1 cache.
inline void transpose(float* out, float const* in, std::size_t rows, std::size_t columns) noexcept {
    constexpr std::size_t block = 16;
    for (std::size_t top = 0; top < rows; top += block) {
        for (std::size_t left = 0; left < columns; left += block) {
            for (std::size_t i = top; i < smaller(top + block, rows); ++i) {
                for (std::size_t j = left; j < smaller(left + block, columns); ++j) {
                    out[j * rows + i] = in[i * columns + j];
                }
            }
        }
    }
}

/// @brief Copies the lower half of an n x n matrix to the upper one. Works in the same blocks.
inline void mirror(float* matrix, std::size_t n) noexcept {
    constexpr std::size_t block = 16;
    for (std::size_t top = 0; top < n; top += block) {
        for (std::size_t left = top; left < n; left += block) {
            for (std::size_t i = top; i < smaller(top + block, n); ++i) {
                for (std::size_t j = larger(left, i + 1); j < smaller(left + block, n); ++j) {
                    matrix[i * n + j] = matrix[j * n + i];
                }
            }
        }
    }
}

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
    /// @param tensor transposes and multiplies, as `TensorArchetype`; the matrix has its shape
    /// @return the result, inside `scratch`
    ZERO_NO_SIDE_CHECK
    template <class Tensor>
    ZERO_HOST_DEVICE static float const* run(float* scratch, Tensor const& tensor) noexcept {
        std::size_t const rows = tensor.rows();
        std::size_t const columns = tensor.columns();
        std::size_t const n = rows * columns;
        bool const is_tall = rows > columns;
        std::size_t const shorter = is_tall ? columns : rows;
        std::size_t const longer = is_tall ? rows : columns;
        float* x = scratch;
        float* next = scratch + n;
        float* const square = scratch + 2 * n;
        float* const polynomial = square + shorter * shorter;
        auto const swap = [&] { // std::swap is a host function
            float* const before = x;
            x = next;
            next = before;
        };
        if (is_tall) {
            tensor.transpose(next, x, rows, columns);
            swap();
        }
        for (int iteration = 0; iteration < iterations; ++iteration) {
            tensor.multiply({.out = square,
                             .left = x,
                             .right = x,
                             .rows = shorter,
                             .columns = shorter,
                             .depth = longer,
                             .is_right_transposed = true,
                             .is_symmetric = true});
            tensor.multiply({.out = polynomial,
                             .left = square,
                             .right = square,
                             .rows = shorter,
                             .columns = shorter,
                             .depth = shorter,
                             .is_symmetric = true,
                             .scale = c,
                             .addend = square,
                             .addend_scale = b});
            tensor.multiply({.out = next,
                             .left = polynomial,
                             .right = x,
                             .rows = shorter,
                             .columns = longer,
                             .depth = shorter,
                             .addend = x,
                             .addend_scale = a});
            swap();
        }
        if (is_tall) {
            tensor.transpose(next, x, columns, rows);
            return next;
        }
        return x;
    }
};

/// @brief A pack of floats with the operations of a matrix product.
template <class F>
concept ProductPack = requires(float const* from, float* to, F const& pack) {
    F(0.0F);
    { F::fma(pack, pack, pack) } -> std::same_as<F>;
    { F::mul(pack, pack) } -> std::same_as<F>;
    { F::load(from) } -> std::same_as<F>;
    pack.store(to);
    { F::size } -> std::convertible_to<std::size_t>;
};

/// @brief A matrix product: out = scale * (left * right) + addend_scale * addend. Matrices are
/// row-major without gaps. Owns no memory.
///
/// Each element is sum = fma(left[i][k], right[k][j], sum) with ascending k, from a sum of 0. If
/// there is an addend, fma(scale, sum, mul(addend_scale, addend)) follows. The order does not
/// depend on the tiles or the width of a pack, so the bits do not either.
struct MatrixProduct {
    float* out;         ///< rows x columns; must not overlap an operand
    float const* left;  ///< rows x depth
    float const* right; ///< depth x columns, or columns x depth if transposed
    std::size_t rows;
    std::size_t columns;
    std::size_t depth;
    bool is_right_transposed = false;
    bool is_symmetric = false; ///< the product is symmetric: only half of it is computed
    float scale = 1.0F;
    float const* addend = nullptr; ///< rows x columns, or null
    float addend_scale = 0.0F;

    template <ProductPack F>
    [[gnu::always_inline]] void operator()() const noexcept {
        // The stores below cannot change a local copy, so it stays in registers.
        auto const product = *this;
        fill_zero(product.out, product.rows * product.columns);
        float panel[panel_depth * 2 * F::size];
        for (std::size_t k = 0; k < product.depth; k += panel_depth) {
            std::size_t const count = smaller(panel_depth, product.depth - k);
            for (std::size_t j = 0; j < product.columns; j += 2 * F::size) {
                product.template pack<2 * F::size>(panel, k, count, j);
                // Symmetric: skip the rows above the diagonal, except for the tile that it crosses.
                for (std::size_t i = product.is_symmetric ? j - j % tile_rows<F> : 0;
                     i < product.rows; i += tile_rows<F>) {
                    product.template add_tile<F>(panel, i, j, k, count);
                }
            }
        }
        product.template finish<F>();
    }

private:
    // Two packs per row: the sums, 2 packs of a panel and one broadcast fit into 16 registers, or
    // into the 32 of AVX-512.
    template <class F>
    static constexpr std::size_t tile_rows = F::size == 16 ? 12 : 6;
    // A panel is at most 32 KiB (packs of 16 floats), so it stays in the L1 cache.
    static constexpr std::size_t panel_depth = 256;

    [[gnu::always_inline]] static void fill_zero(float* out, std::size_t n) noexcept {
        __builtin_memset(out, 0, n * sizeof(float));
    }
    [[gnu::always_inline]] static void copy_row(float* out, float const* in,
                                                std::size_t n) noexcept {
        __builtin_memcpy(out, in, n * sizeof(float));
    }

    /// Copies `width` columns of `right`, padded with zeros, so that a row of the panel is
    /// contiguous.
    template <std::size_t width>
    [[gnu::always_inline]] void pack(float* panel, std::size_t k, std::size_t count,
                                     std::size_t j) const noexcept {
        std::size_t const valid = smaller(width, columns - j);
        if (valid < width) {
            fill_zero(panel, count * width);
        }
        if (is_right_transposed) {
            for (std::size_t column = 0; column < valid; ++column) {
                float const* const from = right + (j + column) * depth + k;
                for (std::size_t row = 0; row < count; ++row) {
                    panel[row * width + column] = from[row];
                }
            }
        } else {
            for (std::size_t row = 0; row < count; ++row) {
                copy_row(panel + row * width, right + (k + row) * columns + j, valid);
            }
        }
    }

    /// Adds `count` terms to the sums of one tile. A tile at an edge is computed in a copy that is
    /// padded with zeros.
    template <class F>
    [[gnu::always_inline]] void add_tile(float const* panel, std::size_t i, std::size_t j,
                                         std::size_t k, std::size_t count) const noexcept {
        constexpr std::size_t width = 2 * F::size;
        std::size_t const valid_rows = smaller(tile_rows<F>, rows - i);
        std::size_t const valid_columns = smaller(width, columns - j);
        float const* from = left + i * depth + k;
        float* sums = out + i * columns + j;
        std::size_t from_stride = depth;
        std::size_t stride = columns;
        bool const is_whole = valid_rows == tile_rows<F> && valid_columns == width;
        float left_copy[tile_rows<F> * panel_depth];
        float sums_copy[tile_rows<F> * width];
        if (!is_whole) {
            fill_zero(left_copy, tile_rows<F> * panel_depth);
            fill_zero(sums_copy, tile_rows<F> * width);
            for (std::size_t row = 0; row < valid_rows; ++row) {
                copy_row(left_copy + row * panel_depth, from + row * depth, count);
                copy_row(sums_copy + row * width, sums + row * columns, valid_columns);
            }
            from = left_copy;
            from_stride = panel_depth;
            sums = sums_copy;
            stride = width;
        }
        multiply<F>(sums, stride, from, from_stride, panel, count,
                    std::make_index_sequence<tile_rows<F>>());
        if (!is_whole) {
            for (std::size_t row = 0; row < valid_rows; ++row) {
                copy_row(out + (i + row) * columns + j, sums_copy + row * width, valid_columns);
            }
        }
    }

    /// The innermost loop. The fold unrolls the rows, because GCC does not unroll loops at -O2.
    template <class F, std::size_t... Row>
    [[gnu::always_inline]] static void
    multiply(float* sums, std::size_t stride, float const* from, std::size_t from_stride,
             float const* panel, std::size_t count, std::index_sequence<Row...>) noexcept {
        F low[] = {F::load(sums + Row * stride)...};
        F high[] = {F::load(sums + Row * stride + F::size)...};
        for (std::size_t k = 0; k < count; ++k) {
            F const right_low = F::load(panel);
            F const right_high = F::load(panel + F::size);
            ((low[Row] = F::fma(F(from[Row * from_stride]), right_low, low[Row]),
              high[Row] = F::fma(F(from[Row * from_stride]), right_high, high[Row])),
             ...);
            panel += 2 * F::size;
            ++from;
        }
        (low[Row].store(sums + Row * stride), ...);
        (high[Row].store(sums + Row * stride + F::size), ...);
    }

    template <class F>
    [[gnu::always_inline]] void finish() const noexcept {
        if (is_symmetric) {
            mirror(out, rows);
        }
        if (addend != nullptr) {
            std::size_t const n = rows * columns;
            std::size_t const whole = n - n % F::size;
            for (std::size_t i = 0; i < whole; i += F::size) {
                F::fma(F(scale), F::load(out + i), F::mul(F(addend_scale), F::load(addend + i)))
                    .store(out + i);
            }
            for (std::size_t i = whole; i < n; ++i) {
                out[i] = ops::fma(scale, out[i], ops::mul(addend_scale, addend[i]));
            }
        }
    }
};

} // namespace ZERO_NAMESPACE::detail
