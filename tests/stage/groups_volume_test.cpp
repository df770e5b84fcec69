#include "support/account.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/groups.hpp>
#include <zero/comm/recording.hpp>
#include <zero/comm/sum_over_ranks.hpp>
#include <zero/core/host_memory_resource.hpp>
#include <zero/layout/communication_model.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/stage/zero_stage.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// What hybrid sharding sends inside and between groups, by the transports' own count and by the
// recorder's, and what it allocates.

namespace zero::test::groups_volume_test {

namespace {

using Hosts = Groups<LoopbackCommunicator, Hybrid>;
using HostsInFloat = Groups<LoopbackCommunicator, HybridInFloat>;
using Counted = Groups<Recording<LoopbackCommunicator>, Hybrid>;

/// Divided evenly by every number of ranks used here.
constexpr std::size_t elements = 2 * 64 * 24;

/// Bytes that a rank reads in one step, by level.
struct Volume {
    std::uint64_t inside = 0;
    std::uint64_t between = 0;
    std::uint64_t inside_recorded = 0;  ///< bytes given to collectives inside
    std::uint64_t between_recorded = 0; ///< elements given to the all-reduces between replicas
    std::uint64_t between_calls = 0;
    std::uint64_t flat = 0; ///< bytes of elements, not of integers, that move over all ranks
};

std::uint64_t bytes_of(TrafficCount const& count) {
    return count[CollectiveKind::reduce_scatter].bytes + count[CollectiveKind::all_gather].bytes
           + count[CollectiveKind::all_reduce].bytes;
}

template <int N>
std::vector<Volume> volumes(int world, int shard, std::size_t micro_steps) {
    std::vector<Volume> volumes(static_cast<std::size_t>(world));
    run_ranks(world, test_time_out, [&](LoopbackCommunicator& everyone) {
        int const rank = everyone.rank();
        auto inside = everyone.split(rank / shard, rank);
        auto between = everyone.split(rank % shard, rank);
        Recording<LoopbackCommunicator> all(everyone);
        Recording<LoopbackCommunicator> of_group(inside);
        Recording<LoopbackCommunicator> of_replicas(between);
        Counted groups(all, of_group, of_replicas);
        ZeroStage<N, Parameters<bfloat16>, Counted> engine(
            groups, registration<bfloat16>(even_specs(elements)));
        (void)run_step(engine, static_cast<std::uint64_t>(rank), 0, micro_steps).report();
        everyone.reset_traffic();
        inside.reset_traffic();
        between.reset_traffic();
        of_group.reset_recorded();
        of_replicas.reset_recorded();
        (void)run_step(engine, static_cast<std::uint64_t>(rank), 1, micro_steps).report();
        auto const& recorded = of_replicas.recorded()[CollectiveKind::all_reduce];
        volumes[static_cast<std::size_t>(rank)] = {bytes_of(inside.traffic()),
                                                   bytes_of(between.traffic()),
                                                   bytes_of(of_group.recorded()),
                                                   recorded.elements,
                                                   recorded.calls,
                                                   bytes_of(everyone.traffic())};
    });
    return volumes;
}

template <class Stage, class Communicator>
void check_memory(int world, std::size_t shard, std::size_t expected_wire) {
    auto const plan =
        check_accounts(on_ranks<Account, Communicator>(world, {.shard = shard}, [&](auto& groups) {
            HostMemoryResource memory;
            Stage engine(groups, registration<typename Stage::ParameterType>(toy_specs()),
                         {.reduction = {.wire_bytes = 256}, .memory = &memory});
            Account own = account_of(engine, memory, [&] {
                (void)run_step(engine, static_cast<std::uint64_t>(groups.rank()), 0, 2).report();
            });
            own.add_communicator(groups.everyone().scratch_bytes(0)
                                 + groups.shard().scratch_bytes(0)
                                 + groups.replicas().scratch_bytes(0));
            return own;
        }));
    CHECK(plan[BufferKind::wire].bytes() == expected_wire);
}

} // namespace

TEST_CASE("A step reads 3 P' b (G-1)/G bytes inside in each micro-step, 2 P' b (R-1)/(G R) between "
          "replicas once, and nothing over all ranks") {
    for (auto const& [world, shard] : {std::array{4, 2}, std::array{6, 3}, std::array{6, 2},
                                       std::array{4, 4}, std::array{4, 1}}) {
        for (std::size_t const micro_steps : {1U, 3U}) {
            CAPTURE(world, shard, micro_steps);
            auto const g = static_cast<std::size_t>(shard);
            auto const r = static_cast<std::size_t>(world / shard);
            std::size_t const between = 2 * elements * 2 * (r - 1) / (g * r);
            // of forward, of backward and of the reduction, which alone a group of one rank has
            std::size_t const third = elements * 2 * (g - 1) / g;
            for (auto const& volume : volumes<3>(world, shard, micro_steps)) {
                CHECK(volume.inside == micro_steps * 3 * third);
                CHECK(volume.inside_recorded == micro_steps * (g == 1 ? 1 : 3) * elements * 2);
                CHECK(volume.between == between);
                CHECK(volume.between_recorded == (r == 1 ? 0 : elements / g));
                CHECK(volume.between_calls == (r == 1 ? 0 : 2U));
                CHECK(volume.flat == 0);
            }
            for (auto const& volume : volumes<2>(world, shard, micro_steps)) {
                CHECK(volume.inside == (micro_steps + 1) * third);
                CHECK(volume.inside_recorded == (micro_steps + (g == 1 ? 0 : 1)) * elements * 2);
                CHECK(volume.between == between);
                CHECK(volume.flat == 0);
            }
            for (auto const& volume : volumes<1>(world, shard, micro_steps)) {
                CHECK(volume.inside == 2 * third); // at the end of the step
                CHECK(volume.between == between);
                CHECK(volume.flat == 0);
            }
        }
    }
    // literals: 3072 bfloat16 elements, 2 x 2 ranks
    auto const literal = volumes<2>(4, 2, 1)[0];
    CHECK(literal.inside == 6144);
    CHECK(literal.between == 3072);
}

TEST_CASE("The formula of what a rank reads from other replicas is exact for uneven extents") {
    for (std::size_t const shard : {1U, 2U, 3U}) {
        std::vector<std::array<std::uint64_t, 2>> counts(6); // by formula, by the transport
        run_ranks<Hosts>(6, test_time_out, {.shard = shard}, [&](Hosts& hosts) {
            auto const rank = static_cast<std::size_t>(hosts.rank());
            ZeroStage<2, Hosts> engine(hosts, registration<float>(toy_specs()));
            hosts.replicas().reset_traffic();
            (void)run_step(engine, rank, 0, 2).report();
            counts[rank] = {
                replica_traffic_of_rank(engine.layout(), rank % shard, hosts.replica(), 6 / shard),
                hosts.replicas().traffic()[CollectiveKind::all_reduce].elements};
        });
        for (auto const& [formula, count] : counts) {
            CHECK(formula == count);
            CHECK(count > 0);
        }
    }
}

TEST_CASE("The memory plan of an engine on groups equals what it allocates, the buffer between "
          "replicas included") {
    // gradients are bfloat16 and sums float: they are rounded in a buffer of 256 bytes
    using Bfloat16 = Parameters<bfloat16>;
    check_memory<ZeroStage<2, Bfloat16, Hosts>, Hosts>(4, 2, 256);
    check_memory<ZeroStage<3, Bfloat16, Hosts>, Hosts>(4, 2, 256);
    check_memory<ZeroStage<3, Bfloat16, RoundRobinPartitioner, Hosts>, Hosts>(6, 3, 256);
    check_memory<ZeroStage<3, Bfloat16, Hosts>, Hosts>(4, 4, 0);
    check_memory<ZeroStage<3, Bfloat16, HostsInFloat>, HostsInFloat>(4, 2, 0);
    check_memory<ZeroStage<2, Hosts>, Hosts>(4, 2, 0);
}

TEST_CASE("A communicator that plays two roles is in the memory plan once") {
    for (bool const is_shard : {true, false}) {
        HostMemoryResource memory; // of the communicators
        std::vector<std::size_t> planned(2);
        std::size_t allocated = 0;
        run_ranks(2, {.time_out = test_time_out.time_out, .memory = &memory},
                  [&](LoopbackCommunicator& all) {
                      LoopbackCommunicator self = all.split(all.rank(), 0);
                      Hosts groups(all, is_shard ? all : self, is_shard ? self : all);
                      ZeroStage<2, Hosts> const engine(groups, registration<float>(toy_specs()));
                      planned[static_cast<std::size_t>(all.rank())] =
                          engine.memory_plan()[BufferKind::communicator].bytes();
                      if (all.rank() == 0) { // the other rank is still there
                          allocated = memory.allocated_bytes(BufferKind::communicator);
                      }
                      (void)sum_over_ranks(all, 1);
                  });
        CHECK(planned[0] + planned[1] == allocated);
        CHECK(planned[0] == 2 * 512);
    }
}

TEST_CASE("The engine's own queue has room for the commands between replicas and of all ranks") {
    std::vector<Parameter<float>> parameters;
    for (std::size_t unit = 0; unit < 10; ++unit) {
        parameters.push_back({.name = std::to_string(unit), .elements = 8, .units = {unit}});
    }
    auto const bytes = [&](std::size_t shard) {
        std::vector<std::size_t> of_ranks(8);
        run_ranks<Hosts>(8, test_time_out, {.shard = shard}, [&](Hosts& hosts) {
            ZeroStage<2, UnitBucketer, Hosts> const engine(hosts, parameters);
            of_ranks[static_cast<std::size_t>(hosts.rank())] =
                engine.memory_plan()[BufferKind::commands].bytes();
        });
        return of_ranks[0];
    };
    // for 2 micro-steps: per bucket 5 commands for each rank of a group and each replica, and 4 for
    // each of the two; per decision 5 for each rank, and 4
    constexpr std::size_t command = 160;
    CHECK(bytes(1) == command * 2 * (10 * (9 + 44) + 44));
    CHECK(bytes(2) == command * 2 * (10 * (14 + 24) + 44));
    CHECK(bytes(8) == command * 2 * (10 * 44 + 44)); // as without groups
}

} // namespace zero::test::groups_volume_test
