#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../nccl_options.hpp"

#include <algorithm>
#include <chrono>

namespace ZERO_NAMESPACE::cuda::detail {

/// @brief Checks the ranges of the options. @throws InvalidArgument naming the option
inline void check_options(NcclOptions const& options) {
    if (options.time_out.count() <= 0) {
        zero::detail::throw_error<InvalidArgument>(
            {"zero: a time-out of ", options.time_out.count(),
             " ms; NcclOptions::time_out must be positive."});
    }
    if (options.finish_time_out.count() < 0 || options.watch_interval.count() < 0) {
        zero::detail::throw_error<InvalidArgument>(
            {"zero: NcclOptions::finish_time_out and watch_interval must not be negative (",
             options.finish_time_out.count(), " ms, ", options.watch_interval.count(), " ms)."});
    }
}

/// @brief Returns the options with unlimited waits replaced by a year, so that the clock can
/// represent their ends.
inline NcclOptions with_finite_waits(NcclOptions options) noexcept {
    constexpr std::chrono::milliseconds year = std::chrono::hours(24 * 365);
    options.finish_time_out = std::min(options.finish_time_out, year);
    options.watch_interval = std::min(options.watch_interval, year);
    return options;
}

} // namespace ZERO_NAMESPACE::cuda::detail
