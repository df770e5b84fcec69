#pragma once

#include "../lion.hpp"

#include "../../core/detail/light_std.hpp"
#include "check_option.hpp"

namespace ZERO_NAMESPACE {

ZERO_COLD_INLINE void Lion::validate(Options const& options) {
    detail::check_option(detail::is_rate(options.beta1), "Lion", "beta1", options.beta1,
                         "at least 0 and less than 1");
    detail::check_option(detail::is_rate(options.beta2), "Lion", "beta2", options.beta2,
                         "at least 0 and less than 1");
    detail::check_option(detail::is_non_negative_float(options.weight_decay), "Lion",
                         "weight_decay", options.weight_decay, "a finite float of at least 0");
}

} // namespace ZERO_NAMESPACE
