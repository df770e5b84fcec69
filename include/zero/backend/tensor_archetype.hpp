#pragma once

#include "../core/detail/namespace.hpp"
#include "../ops/detail/matrix_product.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE {

/// @brief What the update of a whole parameter works with: declarations only, each backend has a
/// type of its own with the same functions.
///
/// A `Functor` is of one element, like an optimizer: `template <class F> void operator()(F
/// gradient, F& parameter, F (&state)[states], Hyper const&) const` with a type `Hyper` and a
/// number `states`, at most that of the optimizer, of whose states it gets the first. Everything
/// runs at once, in the order in which it is called.
struct TensorArchetype {
    [[nodiscard]] std::size_t elements() const noexcept; ///< at least 1
    [[nodiscard]] std::size_t rows() const noexcept;     ///< of the matrix; 0: it is none
    [[nodiscard]] std::size_t
    columns() const noexcept; ///< elements / rows; all elements when it is no matrix
    [[nodiscard]] float*
    scratch() const noexcept; ///< at least what the optimizer's `scratch_floats` says; its content
                              ///< is lost between two updates

    /// @brief The update of an optimizer of one element: reads gradients, updates weights and
    /// states.
    template <class Functor>
    void update(typename Functor::Hyper const& hyper) const noexcept;

    /// @brief The same with other numbers, one for each element, as gradients.
    template <class Functor>
    void update(float const* values, typename Functor::Hyper const& hyper) const noexcept;

    /// @brief Updates states, and writes to `to` what the functor makes of the weights. The weights
    /// stay.
    template <class Functor>
    void write(float* to, typename Functor::Hyper const& hyper) const noexcept;

    /// @brief Updates states; the l2 norm of what the functor makes of the weights, NaN when an
    /// element is not finite. The weights stay.
    ///
    /// From the exact sum of leaves (see `ops::Inspection`): the same bits wherever and however it
    /// is computed.
    template <class Functor>
    [[nodiscard]] double norm(typename Functor::Hyper const& hyper) const noexcept;

    /// @brief The l2 norm of n numbers, in the same way.
    [[nodiscard]] double norm(float const* values, std::size_t n) const noexcept;

    /// @brief values[i] = mul(values[i], factor).
    void scale(float* values, std::size_t n, float factor) const noexcept;

    /// @brief A product of matrices, in the order of additions that `MatrixProduct` says: the same
    /// bits everywhere.
    void multiply(detail::MatrixProduct const& product) const noexcept;
};

} // namespace ZERO_NAMESPACE
