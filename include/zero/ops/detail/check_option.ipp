#pragma once

#include "check_option.hpp"

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"

#include <cstdio>

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE void check_option(bool holds, char const* policy, char const* field, double value,
                                   char const* range) {
    if (!holds) {
        char number[32];
        std::snprintf(number, sizeof number, "%g", value);
        throw_error<InvalidArgument>(
            {"zero::", policy, ": ", field, " is ", number, "; it must be ", range, "."});
    }
}

ZERO_COLD_INLINE void check_epsilon(char const* policy, double value) {
    check_option(is_non_negative_float(value), policy, "epsilon", value,
                 "a finite float of at least 0");
    check_option(value == 0.0 || static_cast<float>(value) > 0.0F, policy, "epsilon", value,
                 "0, or above 0 even when it is rounded to float");
}

} // namespace ZERO_NAMESPACE::detail
