#pragma once

namespace zero::detail {

// As std::min and std::max, by value; their header brings every algorithm of the standard library along.

template <class T>
[[nodiscard]] constexpr T smaller(T a, T b) noexcept {
    return b < a ? b : a;
}

template <class T>
[[nodiscard]] constexpr T larger(T a, T b) noexcept {
    return a < b ? b : a;
}

} // namespace zero::detail
