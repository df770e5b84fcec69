#pragma once

#include "view.hpp"

#include <Eigen/Core>

#include <cassert>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>

namespace gpt {

/// @brief Zero-initialised memory of the model, aligned to a cache line.
///
/// The alignment affects bits as well as speed: vectorised code may split a loop by the address of
/// its data, so all ranks and runs must use the same addresses modulo the vector width.
template <class Real>
class Buffer {
public:
    Buffer() = default;
    explicit Buffer(std::size_t elements)
        : _data(static_cast<Real*>(::operator new(bytes(elements), std::align_val_t{alignment}))),
          _elements(elements) {
        std::memset(_data.get(), 0, bytes(elements));
    }

    static constexpr std::size_t alignment = 64;

    Real* data() noexcept { return _data.get(); }
    Real const* data() const noexcept { return _data.get(); }
    std::size_t size() const noexcept { return _elements; }
    void clear() noexcept { std::memset(_data.get(), 0, bytes(_elements)); }

private:
    static_assert(std::is_floating_point_v<Real>);
    struct Release {
        void operator()(Real* data) const noexcept {
            ::operator delete(data, std::align_val_t{alignment});
        }
    };
    static constexpr std::size_t bytes(std::size_t elements) noexcept {
        return elements * sizeof(Real);
    }

    std::unique_ptr<Real, Release> _data;
    std::size_t _elements = 0;
};

/// @brief A matrix that owns its memory.
template <class Real>
class Matrix {
public:
    Matrix() = default;
    Matrix(std::size_t rows, std::size_t columns)
        : _buffer(rows * columns), _rows(rows), _columns(columns) {}

    operator View<Real>() noexcept { return {_buffer.data(), _rows, _columns, _columns}; } // NOLINT
    operator View<Real const>() const noexcept {
        return {_buffer.data(), _rows, _columns, _columns};
    } // NOLINT
    View<Real> view() noexcept { return *this; }
    View<Real const> view() const noexcept { return *this; }
    Real* row(std::size_t index) noexcept { return _buffer.data() + index * _columns; }
    void clear() noexcept { _buffer.clear(); }

private:
    Buffer<Real> _buffer;
    std::size_t _rows = 0;
    std::size_t _columns = 0;
};

namespace detail {

template <class Real>
auto as_eigen(View<Real> matrix) noexcept {
    using Plain =
        Eigen::Matrix<std::remove_const_t<Real>, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    using Mapped = Eigen::Map<std::conditional_t<std::is_const_v<Real>, Plain const, Plain>, 0,
                              Eigen::OuterStride<>>;
    using Index = Eigen::Index;
    return Mapped(matrix.data, static_cast<Index>(matrix.rows), static_cast<Index>(matrix.columns),
                  Eigen::OuterStride<>(static_cast<Index>(matrix.stride)));
}

} // namespace detail

// Only these three products use Eigen: its sums and other reductions may round differently at
// another address. Each is instantiated once (hence noinline), because Eigen's templates are most
// of the compile time.

/// @brief result = left * right
template <class Real>
[[gnu::noinline]] void multiply_nn(Input<Real> left, Input<Real> right, View<Real> result) {
    assert(left.rows == result.rows && left.columns == right.rows
           && right.columns == result.columns);
    detail::as_eigen(result).noalias() = detail::as_eigen(left) * detail::as_eigen(right);
}

/// @brief result = left * transpose(right)
template <class Real>
[[gnu::noinline]] void multiply_nt(Input<Real> left, Input<Real> right, View<Real> result) {
    assert(left.rows == result.rows && left.columns == right.columns
           && right.rows == result.columns);
    detail::as_eigen(result).noalias() =
        detail::as_eigen(left) * detail::as_eigen(right).transpose();
}

/// @brief result = transpose(left) * right
template <class Real>
[[gnu::noinline]] void multiply_tn(Input<Real> left, Input<Real> right, View<Real> result) {
    assert(left.columns == result.rows && left.rows == right.rows
           && right.columns == result.columns);
    detail::as_eigen(result).noalias() =
        detail::as_eigen(left).transpose() * detail::as_eigen(right);
}

} // namespace gpt
