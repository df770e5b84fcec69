#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"

#include <cstdio>

namespace ZERO_NAMESPACE::detail {

/// Throws unless `holds`; the message names the policy, the field, its value and the range.
inline void check_option(bool holds, char const* policy, char const* field, double value,
                         char const* range) {
    if (!holds) {
        char number[32];
        std::snprintf(number, sizeof number, "%g", value);
        throw_error<InvalidArgument>(
            {"zero::", policy, ": ", field, " is ", number, "; it must be ", range, "."});
    }
}

/// What keeps a divisor from zero. The caller may want it to be zero, but rounding may not make it
/// so.
inline void check_epsilon(char const* policy, double value) {
    check_option(is_non_negative_float(value), policy, "epsilon", value,
                 "a finite float of at least 0");
    check_option(value == 0.0 || static_cast<float>(value) > 0.0F, policy, "epsilon", value,
                 "0, or above 0 also when it is rounded to float");
}

/// A decay rate: 0 <= value < 1, also when it is rounded to float.
inline bool is_rate(double value) noexcept {
    return value >= 0.0 && static_cast<float>(value) < 1.0F;
}

} // namespace ZERO_NAMESPACE::detail
