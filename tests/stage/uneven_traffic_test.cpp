#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"

#include <zero/layout/balanced_partitioner.hpp>
#include <zero/layout/communication_model.hpp>
#include <zero/layout/dealt_group_partitioner.hpp>
#include <zero/layout/proportional_partitioner.hpp>
#include <zero/layout/whole_group_partitioner.hpp>
#include <zero/layout/whole_matrix_partitioner.hpp>
#include <zero/stage/zero_stage.hpp>

#include <vector>

// With unequal shards each rank reads as many elements as the formula gives for its extents, and
// the sum equals that of equal shards.

namespace zero::test::uneven_traffic_test {

namespace {

struct Counts {
    Traffic transport, formula;
    std::size_t padded = 0;
};

template <class Partitioner>
std::vector<Counts> count_step(int world) {
    return on_ranks<Counts>(world, [&](LoopbackCommunicator& communicator) {
        auto const rank = static_cast<std::size_t>(communicator.rank());
        using Stage = ZeroStage<2, Partitioner>;
        typename Stage::Options options{.bucketer = {.bucket_bytes = 1200}};
        if constexpr (requires { options.partitioner.shares; }) {
            options.partitioner.shares = {1, 2, 4};
        }
        Stage engine(communicator, registration<float>(toy_specs()), options);
        communicator.reset_traffic();
        (void)run_step(engine, rank, 0).report();
        auto const& traffic = communicator.traffic();
        Counts counts;
        counts.transport = {traffic[CollectiveKind::reduce_scatter].elements,
                            traffic[CollectiveKind::all_gather].elements, 0};
        counts.formula = step_traffic_of_rank(engine.layout(), rank, 2,
                                              ReductionSchedule::every_micro_step, 1, {});
        counts.padded = engine.layout().bucket_begin(engine.layout().trainable_buckets());
        return counts;
    });
}

template <class Partitioner>
void check_traffic(std::size_t padded) {
    auto const ranks = count_step<Partitioner>(3);
    std::uint64_t reduced = 0;
    bool is_uneven = false;
    for (Counts const& rank : ranks) {
        CHECK(rank.transport == rank.formula);
        CHECK(rank.padded == padded);
        reduced += rank.transport.reduce_scatter;
        is_uneven = is_uneven || rank.transport != ranks[0].transport;
    }
    CHECK(reduced == 2 * padded);
    // WholeGroupPartitioner cuts a bucket unevenly, but the shards are equal in total.
    CHECK(is_uneven == !Partitioner::cuts_group);
}

} // namespace

TEST_CASE("With unequal shards each rank reads from the others what the formula says") {
    // 320 + 512 + 64 + 192 + 64 + 0 + 64 = 1,216 trainable elements in multiples of 64; the group
    // is padded to 3 * 448.
    check_traffic<BalancedPartitioner>(1216);
    check_traffic<ProportionalPartitioner>(1216);
    check_traffic<WholeMatrixPartitioner>(1216);
    check_traffic<WholeGroupPartitioner>(1344);
    check_traffic<DealtGroupPartitioner>(1344);
}

} // namespace zero::test::uneven_traffic_test
