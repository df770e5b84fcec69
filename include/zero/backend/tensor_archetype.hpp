#pragma once

#include "../core/detail/namespace.hpp"
#include "../ops/detail/newton_schulz.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE {

/// @brief The interface through which a `TensorOptimizer` updates one parameter. Declarations only:
/// each backend has its own type with these functions.
///
/// A `Functor` is element-wise, like an `ElementOptimizer`: `template <class F> void operator()(F
/// gradient, F& parameter, F (&state)[states], Hyper const&) const` with a type `Hyper` and a
/// constant `states`. It receives the first `states` states of the optimizer. Calls run
/// synchronously, in call order. On a device each call is a kernel, and `update_tensor` runs on
/// both sides, marked `ZERO_HOST_DEVICE`: which calls it makes may depend on elements, rows and
/// columns, but not on the constants of the step or on a norm.
struct TensorArchetype {
    /// @brief Number of elements, at least 1.
    [[nodiscard]] std::size_t elements() const noexcept;

    /// @brief Rows of the matrix, or 0 if the parameter is not a matrix.
    [[nodiscard]] std::size_t rows() const noexcept;

    /// @brief Columns of the matrix, or all elements if the parameter is not a matrix.
    [[nodiscard]] std::size_t columns() const noexcept;

    /// @brief Scratch space of at least `scratch_floats` floats. Its content is undefined at the
    /// start of each update.
    [[nodiscard]] float* scratch() const noexcept;

    /// @brief Applies a functor to all elements: reads gradients, updates weights and states.
    template <class Functor>
    void update(typename Functor::Hyper const& hyper) const noexcept;

    /// @brief The same with `values`, one per element, instead of the gradients.
    template <class Functor>
    void update(float const* values, typename Functor::Hyper const& hyper) const noexcept;

    /// @brief Updates states and writes the weights that the functor computes to `to`. The weights
    /// of the parameter do not change.
    template <class Functor>
    void write(float* to, typename Functor::Hyper const& hyper) const noexcept;

    /// @brief Updates states and returns the l2 norm of the weights that the functor computes, or
    /// NaN if an element is not finite. The weights of the parameter do not change.
    ///
    /// The sum of squares is exact over leaves (see `ops::Inspection`), so the bits are the same on
    /// every backend.
    template <class Functor>
    [[nodiscard]] double norm(typename Functor::Hyper const& hyper) const noexcept;

    /// @brief Returns the l2 norm of n numbers, computed the same way.
    [[nodiscard]] double norm(float const* values, std::size_t n) const noexcept;

    /// @brief Scales n numbers: values[i] = mul(values[i], factor).
    void scale(float* values, std::size_t n, float factor) const noexcept;

    /// @brief Transposes a rows x columns matrix: out[j][i] = in[i][j]. They must not overlap.
    void transpose(float* out, float const* in, std::size_t rows,
                   std::size_t columns) const noexcept;

    /// @brief Computes a matrix product in the order of additions that `MatrixProduct` defines, so
    /// the bits are the same on every backend.
    void multiply(detail::MatrixProduct const& product) const noexcept;
};

} // namespace ZERO_NAMESPACE
