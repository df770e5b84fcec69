#pragma once

#include "../../core/error.hpp"

#include <cstdio>
#include <string>

namespace zero::detail {

/// Throws unless `holds`; the message names the policy, the field, its value and the range.
inline void check_option(bool holds, char const* policy, char const* field, double value, char const* range) {
    if (!holds) {
        char text[32];
        std::snprintf(text, sizeof text, "%g", value);
        throw InvalidArgument(std::string("zero::") + policy + ": " + field + " is " + text + "; it must be " + range + ".");
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
