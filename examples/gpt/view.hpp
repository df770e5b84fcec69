#pragma once

#include <cstddef>
#include <type_traits>

namespace gpt {

/// @brief A row-major matrix in memory that it does not own. `stride` is the distance between rows,
/// so a head of the attention is a view of columns of a wider matrix.
template <class Real>
struct View {
    Real* data = nullptr;
    std::size_t rows = 0;
    std::size_t columns = 0;
    std::size_t stride = 0;

    Real* row(std::size_t index) const noexcept { return data + index * stride; }
    View slice_rows(std::size_t first, std::size_t count) const noexcept {
        return {row(first), count, columns, stride};
    }
    View slice_columns(std::size_t first, std::size_t count) const noexcept {
        return {data + first, rows, count, stride};
    }
    template <class Same> // a template, because nvcc warns about a conversion of a read-only view
                          // to itself
        requires(std::is_same_v<Same, Real> && !std::is_const_v<Real>)
    operator View<Same const>()
        const noexcept { // NOLINT: like a pointer, a view converts to a read-only view
        return {data, rows, columns, stride};
    }
};

/// @brief A read-only argument whose element type is deduced from another argument, so that a
/// `View` or a `Matrix` converts to it.
template <class Real>
using Input = std::type_identity_t<View<Real const>>;

} // namespace gpt
