#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "check_option.hpp"

#include <cstdio>

namespace ZERO_NAMESPACE::detail {

/// Throws unless `holds`. The message names the policy, the option, its value and the range.
ZERO_COLD_INLINE void check_option(bool holds, char const* policy, char const* field, double value,
                                   char const* range) {
    if (!holds) {
        char number[32];
        std::snprintf(number, sizeof number, "%g", value);
        throw_error<InvalidArgument>(
            {"zero::", policy, ": ", field, " is ", number, "; it must be ", range, "."});
    }
}

ZERO_COLD_INLINE void check_rate(char const* policy, char const* field, double value) {
    check_option(value >= 0.0 && static_cast<float>(value) < 1.0F, policy, field, value,
                 "at least 0 and less than 1");
}

ZERO_COLD_INLINE void check_non_negative(char const* policy, char const* field, double value) {
    check_option(is_non_negative_float(value), policy, field, value,
                 "a finite float of at least 0");
}

ZERO_COLD_INLINE void check_epsilon(char const* policy, double value) {
    check_non_negative(policy, "epsilon", value);
    check_option(value == 0.0 || static_cast<float>(value) > 0.0F, policy, "epsilon", value,
                 "0, or above 0 even when it is rounded to float");
}

ZERO_COLD_INLINE void check_average(char const* policy, double decay, std::uint64_t begin) {
    check_option(decay >= 0.0 && decay <= 1.0, policy, "decay", decay,
                 "at least 0 and at most 1; 1 is the plain mean");
    check_option(begin != 0, policy, "begin", 0.0, "at least 1, the first update");
}

ZERO_COLD_INLINE void validate_adam(char const* policy, double beta1, double beta2, double epsilon,
                                    double weight_decay) {
    check_rate(policy, "beta1", beta1);
    check_rate(policy, "beta2", beta2);
    check_epsilon(policy, epsilon);
    check_non_negative(policy, "weight_decay", weight_decay);
}

} // namespace ZERO_NAMESPACE::detail
