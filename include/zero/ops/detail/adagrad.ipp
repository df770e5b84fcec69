#pragma once

#include "../adagrad.hpp"

#include "../../core/detail/light_std.hpp"
#include "check_option.hpp"

namespace ZERO_NAMESPACE {

ZERO_COLD_INLINE void Adagrad::validate(Options const& options) {
    detail::check_epsilon("Adagrad", options.epsilon);
    detail::check_option(detail::is_non_negative_float(options.weight_decay), "Adagrad",
                         "weight_decay", options.weight_decay, "a finite float of at least 0");
}

} // namespace ZERO_NAMESPACE
