#pragma once

namespace zero::detail {

/// @brief Neither infinite nor NaN. In place of <cmath>, which costs every unit more than all policies together.
constexpr bool is_finite(double value) noexcept {
    return value - value == 0.0;
}

} // namespace zero::detail
