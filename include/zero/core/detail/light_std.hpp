#pragma once

/// @file
/// @brief Private replacements for parts of the standard library, chosen for compile time
/// (docs/compile_time.md).
///
/// `<cmath>` is a tenth of the cost of all standard headers, `<algorithm>` and `<functional>` are
/// another, and std::vector takes three times as long to compile per element type as `List`.
/// Private members of templates therefore use `List`, and callback parameters use `FunctionRef`.

#include "namespace.hpp"

#include <cstddef>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief True unless the value is infinite or NaN.
constexpr bool is_finite(double value) noexcept {
    return value - value == 0.0;
}

/// @brief True for 0 and for positive numbers up to the largest finite float; false for NaN.
constexpr bool is_non_negative_float(double value) noexcept {
    return value >= 0.0 && value <= 0x1.fffffep127;
}

/// @brief As std::min, but by value.
template <class T>
[[nodiscard]] constexpr T smaller(T a, T b) noexcept {
    return b < a ? b : a;
}

/// @brief As std::max, but by value.
template <class T>
[[nodiscard]] constexpr T larger(T a, T b) noexcept {
    return a < b ? b : a;
}

/// @brief Returns a view of all elements. The implicit conversion would instantiate the range
/// concepts for every element type.
template <class T>
[[nodiscard]] std::span<T const> as_span(std::vector<T> const& values) noexcept {
    return {values.data(), values.size()};
}

/// @brief Returns whether ascending numbers contain a value. O(log n).
[[nodiscard]] constexpr bool contains_ascending(std::span<std::size_t const> numbers,
                                                std::size_t value) noexcept {
    std::size_t first = 0; // the value is not before it
    for (std::size_t left = numbers.size(); left > 1;) {
        std::size_t const half = left / 2;
        first += numbers[first + half] <= value ? half : 0;
        left -= half;
    }
    return first < numbers.size() && numbers[first] == value;
}

/// @brief Non-owning reference to a function object, or empty. Use it for parameters only: the
/// function object must outlive the call.
template <class... Arguments>
class FunctionRef {
public:
    FunctionRef() = default;

    template <class F>
    FunctionRef(F const& function) noexcept // NOLINT(google-explicit-constructor): an argument
        : _function(&function), _call([](void const* f, Arguments... arguments) {
              (*static_cast<F const*>(f))(arguments...);
          }) {}

    explicit operator bool() const noexcept { return _call != nullptr; }
    void operator()(Arguments... arguments) const { _call(_function, arguments...); }

private:
    void const* _function = nullptr;
    void (*_call)(void const*, Arguments...) = nullptr;
};

/// @brief A growable array that owns its elements. Move-only.
///
/// Elements are default-constructible, and their move assignment does not throw. An engine has
/// lists of about twenty element types.
template <class T>
class List {
public:
    List() = default;
    explicit List(std::size_t count) : _elements(new T[count]{}), _size(count), _capacity(count) {}
    List(std::initializer_list<T> elements)
        : List(std::span<T const>(elements.begin(), elements.size())) {}
    explicit List(std::span<T const> elements) : List(elements.size()) {
        for (std::size_t index = 0; index < _size; ++index) {
            _elements[index] = elements[index];
        }
    }
    List(List&& other) noexcept { swap(other); }
    List& operator=(List&& other) noexcept {
        swap(other);
        return *this;
    }
    ~List() { delete[] _elements; }

    [[nodiscard]] std::size_t size() const noexcept { return _size; }
    [[nodiscard]] bool empty() const noexcept { return _size == 0; }
    [[nodiscard]] T* data() noexcept { return _elements; }
    [[nodiscard]] T const* data() const noexcept { return _elements; }
    [[nodiscard]] T& operator[](std::size_t index) noexcept { return _elements[index]; }
    [[nodiscard]] T const& operator[](std::size_t index) const noexcept { return _elements[index]; }
    [[nodiscard]] T* begin() noexcept { return _elements; }
    [[nodiscard]] T* end() noexcept { return _elements + _size; }
    [[nodiscard]] T const* begin() const noexcept { return _elements; }
    [[nodiscard]] T const* end() const noexcept { return _elements + _size; }

    /// @brief Appends an element in amortised O(1). Reallocation moves the elements.
    void push_back(T element) {
        if (_size == _capacity) {
            reserve(larger<std::size_t>(4, 2 * _capacity));
        }
        _elements[_size++] = std::move(element);
    }

    /// @brief Allocates capacity for this many elements.
    void reserve(std::size_t capacity) {
        if (capacity > _capacity) {
            T* const elements = new T[capacity]{};
            for (std::size_t index = 0; index < _size; ++index) {
                elements[index] = std::move(_elements[index]);
            }
            delete[] _elements;
            _elements = elements;
            _capacity = capacity;
        }
    }

    /// @brief Removes all elements and keeps the capacity.
    void clear() noexcept {
        while (_size != 0) {
            _elements[--_size] = T{};
        }
    }

    void swap(List& other) noexcept {
        std::swap(_elements, other._elements);
        std::swap(_size, other._size);
        std::swap(_capacity, other._capacity);
    }

private:
    T* _elements = nullptr;
    std::size_t _size = 0;
    std::size_t _capacity = 0;
};

/// @brief Returns a view of all elements.
template <class T>
[[nodiscard]] std::span<T const> as_span(List<T> const& list) noexcept {
    return {list.data(), list.size()};
}

} // namespace ZERO_NAMESPACE::detail
