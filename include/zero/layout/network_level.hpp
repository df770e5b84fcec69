#pragma once

#include "../core/detail/namespace.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE {

/// @brief One level of a network, as the ranks that communicate over it see it: a message of n
/// bytes takes `latency_seconds + n / bytes_per_second` (Thakur, Rabenseifner and Gropp,
/// Optimization of Collective Communication Operations in MPICH, 2005, section "Cost Model").
struct NetworkLevel {
    double latency_seconds = 0;  ///< latency of one message; finite, at least 0
    double bytes_per_second = 0; ///< bandwidth in one direction, while all ranks communicate;
                                 ///< finite, above 0
};

/// @brief A measured reduce-scatter or all-gather of equal extents.
struct CollectiveSample {
    double read_bytes = 0; ///< bytes that one rank reads from the others: (W - 1) / W of the bucket
    double seconds = 0;    ///< the time of the collective
};

/// @brief Returns the level on which both collectives take as long as measured:
/// (W - 1) `latency_seconds` + `read_bytes` / `bytes_per_second`.
///
/// If the two measurements give a negative latency, the latency is 0.
/// @param world number of ranks that measured, at least 2
/// @param shorter reads fewer bytes, and takes less time, than `longer`
/// @throws InvalidArgument if an argument is out of range
NetworkLevel fit_network_level(std::size_t world, CollectiveSample shorter,
                               CollectiveSample longer);

} // namespace ZERO_NAMESPACE

#if !defined(ZERO_COMPILED)
#include "detail/network_level.ipp"
#endif
