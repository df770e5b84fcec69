#include "partitions.hpp"

#include "support/catch.hpp"

#include <zero/layout/contiguous_partitioner.hpp>
#include <zero/layout/padding.hpp>

namespace zero::test::partitioner_test {

using test::List;
using test::partition;

TEST_CASE("The contiguous partitioner keeps the order and cuts into equal multiples of 64") {
    auto state = ContiguousPartitioner::begin(List{}, 4);
    // 1 -> 64, 65 -> 128, 0 -> 0, 64 -> 64: 256 elements.
    auto const four = partition<ContiguousPartitioner>({1, 65, 0, 64}, 4, state);
    CHECK(four.order == List{0, 1, 2, 3});
    CHECK(four.offsets == List{0, 64, 192, 192});
    CHECK(four.cuts == List{0, 64, 128, 192, 256});
    CHECK(partition<ContiguousPartitioner>({1, 65, 0, 64}, 3, state).cuts
          == List{0, 128, 256, 384});
    CHECK(partition<ContiguousPartitioner>({1, 65, 0, 64}, 1, state).cuts == List{0, 256});
    CHECK(partition<ContiguousPartitioner>({1, 65, 0, 64}, 5, state).cuts
          == List{0, 64, 128, 192, 256, 320});
    CHECK(partition<ContiguousPartitioner>({0}, 3, state).cuts == List{0, 0, 0, 0});
}

TEST_CASE("The round-robin partitioner assigns whole parameters in turn and sorts them by owner") {
    RoundRobinPartitioner::State state;
    // Owners 0, 1, 2, 0, 1: rank 0 has items 0 and 3, rank 1 has 1 and 4, rank 2 has 2.
    auto const first = partition<RoundRobinPartitioner>({10, 100, 64, 65, 1}, 3, state);
    CHECK(first.order == List{0, 3, 1, 4, 2});
    CHECK(first.offsets == List{0, 64, 192, 320, 384});
    CHECK(first.cuts == List{0, 192, 384, 448});
    CHECK(state.turn == 5);
    // The next bucket continues the turn: owners 2, 0.
    auto const second = partition<RoundRobinPartitioner>({10, 100}, 3, state);
    CHECK(second.order == List{1, 0});
    CHECK(second.offsets == List{0, 128});
    CHECK(second.cuts == List{0, 128, 128, 192});
    CHECK(state.turn == 7);
}

TEST_CASE("The round-robin partitioner gives empty extents to ranks that have no turn") {
    RoundRobinPartitioner::State state{2};
    CHECK(partition<RoundRobinPartitioner>({7}, 5, state).cuts == List{0, 0, 0, 64, 64, 64});
    state.turn = 4;
    CHECK(partition<RoundRobinPartitioner>({7}, 5, state).cuts == List{0, 0, 0, 0, 0, 64});
    state.turn = 0;
    CHECK(partition<RoundRobinPartitioner>({7, 8}, 1, state).cuts == List{0, 128});
}

TEST_CASE("The partitioners declare whether they cut parameters and whether extents are equal") {
    STATIC_REQUIRE(ContiguousPartitioner::cuts_parameters);
    STATIC_REQUIRE(ContiguousPartitioner::is_even);
    STATIC_REQUIRE_FALSE(RoundRobinPartitioner::cuts_parameters);
    STATIC_REQUIRE_FALSE(RoundRobinPartitioner::is_even);
    STATIC_REQUIRE(granularity == 64);
}

} // namespace zero::test::partitioner_test
