#pragma once

#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../network_level.hpp"

namespace ZERO_NAMESPACE {

ZERO_COLD_INLINE NetworkLevel fit_network_level(std::size_t world, CollectiveSample shorter,
                                                CollectiveSample longer) {
    if (world < 2) {
        detail::throw_error<InvalidArgument>({"zero: a network level is fitted to the collectives "
                                              "of at least 2 ranks, and 'world' is ",
                                              world, '.'});
    }
    double const bytes = longer.read_bytes - shorter.read_bytes;
    double const seconds = longer.seconds - shorter.seconds;
    bool const is_ascending = shorter.read_bytes >= 0 && shorter.seconds >= 0 && bytes > 0
                              && seconds > 0 && bytes - bytes == 0 && seconds - seconds == 0;
    if (!is_ascending) {
        detail::throw_error<InvalidArgument>(
            {"zero: a network level is fitted to two finite samples of which 'longer' reads more "
             "bytes and takes more seconds; measure sizes that lie further apart, or repeat the "
             "measurement more often."});
    }
    NetworkLevel level;
    level.bytes_per_second = bytes / seconds;
    double const rest = shorter.seconds - shorter.read_bytes / level.bytes_per_second;
    level.latency_seconds = rest > 0 ? rest / static_cast<double>(world - 1) : 0;
    return level;
}

} // namespace ZERO_NAMESPACE
