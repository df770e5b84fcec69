#pragma once

#include "../sgd.hpp"

#include "../../core/detail/light_std.hpp"
#include "check_option.hpp"

namespace ZERO_NAMESPACE {

ZERO_COLD_INLINE void Sgd::validate(Options const& options) {
    detail::check_option(detail::is_rate(options.momentum), "Sgd", "momentum", options.momentum,
                         "at least 0 and less than 1");
    detail::check_option(detail::is_non_negative_float(options.weight_decay), "Sgd", "weight_decay",
                         options.weight_decay, "a finite float of at least 0");
}

} // namespace ZERO_NAMESPACE
