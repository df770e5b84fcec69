#pragma once

#include "validate_adam.hpp"

#include "../../core/detail/light_std.hpp"
#include "check_option.hpp"

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE void validate_adam(char const* policy, double beta1, double beta2, double epsilon,
                                    double weight_decay) {
    check_option(is_rate(beta1), policy, "beta1", beta1, "at least 0 and less than 1");
    check_option(is_rate(beta2), policy, "beta2", beta2, "at least 0 and less than 1");
    check_epsilon(policy, epsilon);
    check_option(is_non_negative_float(weight_decay), policy, "weight_decay", weight_decay,
                 "a finite float of at least 0");
}

} // namespace ZERO_NAMESPACE::detail
