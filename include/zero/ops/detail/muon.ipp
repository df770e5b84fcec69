#pragma once

#include "../muon.hpp"

#include "../../core/detail/light_std.hpp"
#include "check_option.hpp"

namespace ZERO_NAMESPACE {

ZERO_COLD_INLINE void Muon::validate(Options const& options) {
    detail::check_option(detail::is_rate(options.momentum), "Muon", "momentum", options.momentum,
                         "at least 0 and less than 1");
    detail::check_option(detail::is_non_negative_float(options.weight_decay), "Muon",
                         "weight_decay", options.weight_decay, "a finite float of at least 0");
    detail::check_option(detail::is_non_negative_float(options.adamw_learning_rate_factor), "Muon",
                         "adamw_learning_rate_factor", options.adamw_learning_rate_factor,
                         "a finite float of at least 0");
    AdamW::validate(options.adamw);
}

} // namespace ZERO_NAMESPACE
