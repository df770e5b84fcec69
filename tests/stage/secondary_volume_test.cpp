#include "secondary_model.hpp"
#include "support/account.hpp"
#include "support/catch.hpp"

#include <zero/comm/recording.hpp>
#include <zero/core/host_memory_resource.hpp>
#include <zero/layout/communication_model.hpp>
#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/stage/wire.hpp>
#include <zero/stage/zero_stage.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

// What an engine with secondary copies sends where, by the transports' own count and by the
// recorder's, and what it allocates.

namespace zero::test::secondary_volume_test {

namespace {

using namespace secondary_model;

/// The bytes that a rank reads in gathers of one step.
struct Volume {
    std::uint64_t everyone = 0;
    std::uint64_t inside = 0;
    std::uint64_t recorded = 0; ///< elements of buckets gathered inside
    std::uint64_t calls = 0;    ///< their number
    std::uint64_t reduced = 0;  ///< over all ranks
};

std::vector<Volume> volumes(int ranks, int secondary, std::size_t micro_steps) {
    using Counted = Groups<Recording<LoopbackCommunicator>, Secondary>;
    return on_ranks<Volume>(ranks, [&](LoopbackCommunicator& everyone) {
        int const rank = everyone.rank();
        auto inside = everyone.split(rank / secondary, rank);
        Recording<LoopbackCommunicator> all(everyone);
        Recording<LoopbackCommunicator> part(inside);
        Counted groups(all, part);
        ZeroStage<3, Parameters<bfloat16>, Counted> engine(
            groups, registration<bfloat16>(even_specs(elements)));
        (void)run_step(engine, static_cast<std::uint64_t>(rank), 0, micro_steps).report();
        everyone.reset_traffic();
        inside.reset_traffic();
        part.reset_recorded();
        (void)run_step(engine, static_cast<std::uint64_t>(rank), 1, micro_steps).report();
        auto const& recorded = part.recorded()[CollectiveKind::all_gather];
        return Volume{gathered(everyone.traffic()), gathered(inside.traffic()), recorded.elements,
                      recorded.calls, everyone.traffic()[CollectiveKind::reduce_scatter].bytes};
    });
}

template <class Stage>
void check_memory(typename Stage::Options const& given, std::size_t expected) {
    auto const plan = check_accounts(on_ranks<Account, typename Stage::Communicator>(
        static_cast<int>(world), {.secondary = 2}, [&](auto& hosts) {
            HostMemoryResource memory;
            auto options = given;
            options.memory = &memory;
            Stage engine(hosts, registration<typename Stage::ParameterType>(toy_specs()), options);
            Account own = account_of(engine, memory, [&] {
                (void)run_step(engine, static_cast<std::uint64_t>(hosts.rank()), 0, 2).report();
            });
            own.add_communicator(hosts.scratch_bytes(0));
            return own;
        }));
    CHECK(plan[BufferKind::secondary_copies].bytes() == expected);
}

} // namespace

TEST_CASE("Forward reads P' b (W-1)/W bytes from all ranks in the first micro-step, and every "
          "later gather P' b (k-1)/k inside") {
    for (auto const& [ranks, secondary] :
         {std::array{4, 2}, std::array{6, 3}, std::array{6, 2}, std::array{8, 4}}) {
        for (std::size_t const micro_steps : {1U, 3U}) {
            CAPTURE(ranks, secondary, micro_steps);
            auto const w = static_cast<std::size_t>(ranks);
            auto const k = static_cast<std::size_t>(secondary);
            for (auto const& volume : volumes(ranks, secondary, micro_steps)) {
                CHECK(volume.everyone == elements * 2 * (w - 1) / w);
                CHECK(volume.inside == (2 * micro_steps - 1) * elements * 2 * (k - 1) / k);
                CHECK(volume.recorded == (2 * micro_steps - 1) * elements);
                CHECK(volume.calls == (2 * micro_steps - 1) * 2);
                CHECK(volume.reduced == micro_steps * elements * 2 * (w - 1) / w);
            }
        }
    }
    // literals: 3072 bfloat16 elements, 2 x 2 ranks
    auto const literal = volumes(4, 2, 1)[0];
    CHECK(literal.everyone == 4608);
    CHECK(literal.inside == 3072);
    CHECK(literal.reduced == 4608);
}

TEST_CASE(
    "With secondary copies, weights in 8 bits and gradients in 4, a step of stage 3 reads less "
    "than 0.8 between hosts where a flat one in 16 bits reads 3") {
    auto const read = [](LoopbackCommunicator& everyone, auto& engine) {
        auto const rank = static_cast<std::uint64_t>(everyone.rank());
        (void)run_step(engine, rank, 0, 1).report();
        everyone.reset_traffic();
        (void)run_step(engine, rank, 1, 1).report();
        auto const& count = everyone.traffic();
        return gathered(count) + count[CollectiveKind::reduce_scatter].bytes
               + count[CollectiveKind::exchange].bytes;
    };
    auto const parameters = registration<bfloat16>(even_specs(elements));
    auto const flat = on_ranks<std::uint64_t>(4, [&](LoopbackCommunicator& everyone) {
        ZeroStage<3, Parameters<bfloat16>> engine(everyone, parameters);
        return read(everyone, engine);
    });
    using Coded = Wire<Int8Blocks, Int4Blocks>;
    auto const together = on_hosts<std::uint64_t>([&](Hosts& hosts) {
        ZeroStage<3, Parameters<bfloat16>, Coded, Hosts> engine(hosts, parameters);
        return read(hosts.everyone(), engine);
    });
    // P' b (W-1)/W for each of three passes; forward takes 66 bytes for 128, backward stays inside,
    // and the reduction takes 34. Extents are equal, so 2/3 of each comes from the other host.
    std::uint64_t const pass = elements * 2 * 3 / 4;
    CHECK(flat == std::vector<std::uint64_t>(4, 3 * pass));
    CHECK(together == std::vector<std::uint64_t>(4, pass * (66 + 34) / 128));
    CHECK(together[0] == 3600);
    CHECK(together[0] * 3 * 10 < flat[0] * 8);
}

TEST_CASE(
    "In replicas the first gather goes over a shard group, later ones inside, and sums between "
    "replicas as without copies") {
    std::vector<std::array<std::uint64_t, 5>> counts(8);
    run_ranks<Groups<LoopbackCommunicator, Hybrid>>(
        8, test_time_out, {.shard = 4}, [&](Groups<LoopbackCommunicator, Hybrid>& shards) {
            InReplicas groups(shards, {.secondary = 2});
            auto const rank = static_cast<std::size_t>(groups.rank());
            ZeroStage<3, Parameters<bfloat16>, InReplicas> engine(
                groups, registration<bfloat16>(even_specs(elements)));
            (void)run_step(engine, rank, 0, 3).report();
            shards.everyone().reset_traffic();
            groups.shard().reset_traffic();
            groups.replicas().reset_traffic();
            groups.secondary().reset_traffic();
            (void)run_step(engine, rank, 1, 3).report();
            counts[rank] = {gathered(shards.everyone().traffic()),
                            gathered(groups.shard().traffic()),
                            gathered(groups.secondary().traffic()),
                            groups.shard().traffic()[CollectiveKind::reduce_scatter].bytes,
                            groups.replicas().traffic()[CollectiveKind::all_reduce].bytes};
        });
    for (auto const& count : counts) {
        CHECK(count
              == std::array<std::uint64_t, 5>{0, elements * 2 * 3 / 4, 5 * elements * 2 / 2,
                                              3 * elements * 2 * 3 / 4, 2 * elements * 2 / 8});
    }
}

TEST_CASE("The formula of what is read from all ranks and inside is exact for uneven extents, "
          "persistent and kept buckets") {
    using Stage = ZeroStage<3, RoundRobinPartitioner, Hosts>;
    GatherOptions const options[] = {{},
                                     {.persistence_threshold = 64},
                                     {.max_reuse_distance = 0},
                                     {.max_reuse_distance = 400},
                                     {.keep_until_update = 400}};
    for (GatherOptions const& gather : options) {
        for (std::size_t const micro_steps : {1U, 2U}) {
            auto const counts = on_hosts<std::array<std::uint64_t, 7>>([&](Hosts& hosts) {
                auto const rank = static_cast<std::size_t>(hosts.rank());
                Stage engine(hosts, registration<float>(toy_specs()), {.gather = gather});
                std::vector<std::size_t> units;
                for (std::size_t pass = 0; pass < micro_steps; ++pass) {
                    for (std::size_t const unit : {0U, 1U, 2U, 3U, 4U, 4U, 3U, 2U, 1U, 0U}) {
                        units.push_back(unit);
                    }
                }
                (void)run_step(engine, rank, 0, micro_steps).report();
                hosts.everyone().reset_traffic();
                hosts.secondary().reset_traffic();
                (void)run_step(engine, rank, 1, micro_steps).report();
                auto const formula = step_traffic_with_secondary(
                    engine.layout(), rank, 2, engine.schedule(), micro_steps, units, gather);
                auto const terms = count_step_communication(
                    engine.layout(), rank, 3, engine.schedule(), micro_steps, units,
                    {.sizes = {.parameter = 4}, .gather = gather, .secondary_ranks = 2});
                auto const all = hosts.everyone().traffic()[CollectiveKind::all_gather];
                auto const inside = hosts.secondary().traffic()[CollectiveKind::all_gather];
                return std::array<std::uint64_t, 7>{formula.everyone.all_gather - all.elements,
                                                    formula.secondary - inside.elements,
                                                    terms.gathers.bytes - 4 * all.elements,
                                                    terms.secondary.bytes - 4 * inside.elements,
                                                    terms.gathers.calls - all.calls,
                                                    terms.secondary.calls - inside.calls,
                                                    inside.elements};
            });
            for (auto const& count : counts) {
                std::array<std::uint64_t, 7> expected{};
                expected[6] = count[6];
                CHECK(count == expected);
                CHECK(count[6] > 0);
            }
        }
    }
}

TEST_CASE("The cost model puts later gathers on the level of the ranks that share a copy") {
    // 2 x 2 ranks, one micro-step, links of 8 and 1 bytes per second used one after the other
    auto const layout = make_layout<ContiguousPartitioner, UnitBucketer>(
        even_specs(elements), {.world = 4, .element_bytes = 2, .buckets_inside_units = true});
    CommunicationModel const model({.bytes_per_second = 8}, {.bytes_per_second = 1}, 2,
                                   CollectiveAlgorithm::hierarchical);
    auto const seconds = [&](std::size_t secondary) {
        std::array<std::size_t, 4> const units{0, 1, 0, 1};
        StepCommunicationOptions const options{
            .sizes = {.parameter = 2, .gradient = 2, .communication = 2},
            .secondary_ranks = secondary};
        return model.predict(4, count_step_communication(layout, 0, 3,
                                                         ReductionSchedule::every_micro_step, 1,
                                                         units, options));
    };
    double const bytes = elements * 2;
    CHECK(seconds(0).gathers == 2 * (bytes / 2 / 8 + bytes / 2));
    CHECK(seconds(2).gathers == bytes / 2 / 8 + bytes / 2 + bytes / 2 / 8);
    CHECK(seconds(2).reductions == seconds(0).reductions);
    double const ratio = seconds(0).total() / seconds(2).total();
    CHECK(ratio == Approx(1.42).epsilon(0.01));
}

TEST_CASE("Copies of ranks that cannot share one have no formula") {
    auto const layout = make_layout<ContiguousPartitioner, UnitBucketer>(
        even_specs(elements), {.world = 4, .element_bytes = 2, .buckets_inside_units = true});
    for (std::size_t const secondary : {0U, 1U, 3U, 4U}) {
        CHECK_THROWS_WITH(step_traffic_with_secondary(layout, 0, secondary,
                                                      ReductionSchedule::every_micro_step, 1, {}),
                          contains_text("cannot share a secondary copy"));
    }
}

TEST_CASE("The memory plan of an engine with secondary copies equals what it allocates") {
    // halves of buckets of 512, 768, 256, 256, 256 and 256 elements
    check_memory<ZeroStage<3, Hosts>>({}, 1152 * 4);
    // parameters of up to 64 elements are persistent and have none
    check_memory<ZeroStage<3, Hosts>>({.gather = {.persistence_threshold = 64}}, 640 * 4);
    // first halves, up to the next multiple of 64, of 320, 576, 192, 64, 64 and 64 elements
    check_memory<ZeroStage<3, Parameters<bfloat16>, RoundRobinPartitioner, Hosts>>({}, 832 * 2);
    check_memory<ZeroStage<3, Hosts>>({.rebuild_buckets = ZeroStage<3, Hosts>::in_ready_order},
                                      1152 * 4);
    auto const parts = on_hosts<MemoryRow>([](Hosts& hosts) {
        ZeroStage<3, RoundRobinPartitioner, Hosts> const engine(hosts,
                                                                registration<float>(toy_specs()));
        return engine.memory_plan()[BufferKind::secondary_copies];
    });
    // 1041 elements in two halves, the second of which is empty for three buckets
    CHECK(parts[0].content_bytes + parts[1].content_bytes == 1041 * 4);
    CHECK(parts[1].bytes() == (128 + 256 + 64) * 4);
    CHECK(parts[2] == parts[0]);
    CHECK(parts[3] == parts[1]);
}

} // namespace zero::test::secondary_volume_test
