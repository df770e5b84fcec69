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
    std::vector<Result> results(world);
    run_ranks<Hosts>(static_cast<int>(world), test_time_out, {.secondary = 2}, [&](Hosts& hosts) {
        results[static_cast<std::size_t>(hosts.rank())] = body(hosts);
    });
    return results;
}

/// Returns the bytes that a rank read in all-gathers.
inline std::uint64_t gathered(TrafficCount const& count) {
    return count[CollectiveKind::all_gather].bytes;
}

/// Two units of weights that are divided evenly by every number of ranks used here.
inline constexpr std::size_t elements = 2 * 64 * 24;

inline std::vector<ParameterSpec> even_specs() {
    return {{"first", elements / 2, {0}, 0, true}, {"second", elements / 2, {1}, 0, true}};
}

} // namespace zero::test::secondary_model
