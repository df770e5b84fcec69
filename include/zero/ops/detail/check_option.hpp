#pragma once

#include "../../core/throw_error.hpp"

#include <cstdio>

namespace zero::detail {

/// Throws unless `holds`; the message names the policy, the field, its value and the range.
inline void check_option(bool holds, char const* policy, char const* field, double value, char const* range) {
    if (!holds) {
        char number[32];
        std::snprintf(number, sizeof number, "%g", value);
        throw_error<InvalidArgument>({"zero::", policy, ": ", field, " is ", number, "; it must be ", range, "."});
    }
}

/// A factor of a step: zero or a positive number that is a finite float. (A comparison with NaN is false.)
inline bool is_non_negative_float(double value) noexcept {
    return value >= 0.0 && value <= 0x1.fffffep127;
}

/// A decay rate: 0 <= value < 1, also when it is rounded to float.
inline bool is_rate(double value) noexcept {
    return value >= 0.0 && static_cast<float>(value) < 1.0F;
}

} // namespace zero::detail
