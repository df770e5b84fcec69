#pragma once

// Four ranks of which two share secondary copies.

#include "support/ranks.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/groups.hpp>
#include <zero/comm/secondary.hpp>
#include <zero/comm/traffic_count.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace zero::test::secondary_model {

using Hosts = Groups<LoopbackCommunicator, Secondary>;
using InReplicas = Groups<Groups<LoopbackCommunicator, Hybrid>, Secondary>;
static_assert(SecondaryCommunicator<Hosts> && !GroupedCommunicator<Hosts>);
static_assert(SecondaryCommunicator<InReplicas> && GroupedCommunicator<InReplicas>);
static_assert(!SecondaryCommunicator<LoopbackCommunicator>);

inline constexpr std::size_t world = 4;

using Values = std::vector<std::vector<float>>;

/// Runs `body(hosts)` on 4 ranks, of which 2 share a copy, and returns the results by rank.
template <class Result, class Body>
std::vector<Result> on_hosts(Body const& body) {
    return on_ranks<Result, Hosts>(static_cast<int>(world), {.secondary = 2}, body);
}

/// Returns the bytes that a rank read in all-gathers.
inline std::uint64_t gathered(TrafficCount const& count) {
    return count[CollectiveKind::all_gather].bytes;
}

/// Divided evenly by every number of ranks used here.
inline constexpr std::size_t elements = 2 * 64 * 24;

} // namespace zero::test::secondary_model
