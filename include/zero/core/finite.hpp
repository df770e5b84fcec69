#pragma once

namespace zero::detail {

/// @brief Neither infinite nor NaN. In place of `<cmath>`, a tenth of what all standard headers cost a unit.
constexpr bool is_finite(double value) noexcept {
    return value - value == 0.0;
}

/// @brief Zero or a positive number that is finite as a float, too. (A comparison with NaN is false.)
constexpr bool is_non_negative_float(double value) noexcept {
    return value >= 0.0 && value <= 0x1.fffffep127;
}

} // namespace zero::detail
