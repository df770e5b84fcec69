#include "support/catch.hpp"

#include "zero/layout/partitioner.hpp"

#include <vector>

using namespace zero;

namespace {

struct Partition {
    std::vector<std::size_t> order;
    std::vector<std::size_t> offsets;
    std::vector<std::size_t> cuts;
};

template <class P>
Partition partition(std::vector<std::size_t> const& sizes, std::size_t world, std::size_t& turn) {
    std::vector<PartitionItem> items;
    for (std::size_t index = 0; index < sizes.size(); ++index) {
        items.push_back({index, sizes[index], 0});
    }
    Partition result;
    result.cuts.assign(world + 1, 12345); // every cut has to be written
    P::partition(items, turn, result.cuts);
    for (PartitionItem const& item : items) {
        result.order.push_back(item.index);
        result.offsets.push_back(item.offset);
    }
    return result;
}

using List = std::vector<std::size_t>;

} // namespace

TEST_CASE("the contiguous partitioner keeps the order and cuts into equal multiples of 64") {
    std::size_t turn = 0;
    // 1 -> 64, 65 -> 128, 0 -> 0, 64 -> 64: 256 elements.
    auto const four = partition<ContiguousPartitioner>({1, 65, 0, 64}, 4, turn);
    CHECK(four.order == List{0, 1, 2, 3});
    CHECK(four.offsets == List{0, 64, 192, 192});
    CHECK(four.cuts == List{0, 64, 128, 192, 256});
    CHECK(partition<ContiguousPartitioner>({1, 65, 0, 64}, 3, turn).cuts == List{0, 128, 256, 384});
    CHECK(partition<ContiguousPartitioner>({1, 65, 0, 64}, 1, turn).cuts == List{0, 256});
    CHECK(partition<ContiguousPartitioner>({1, 65, 0, 64}, 5, turn).cuts == List{0, 64, 128, 192, 256, 320});
    CHECK(partition<ContiguousPartitioner>({0}, 3, turn).cuts == List{0, 0, 0, 0});
    CHECK(turn == 0);
}

TEST_CASE("the round-robin partitioner deals whole parameters in turn and sorts them by owner") {
    std::size_t turn = 0;
    // Owners 0, 1, 2, 0, 1: rank 0 has the items 0 and 3, rank 1 has 1 and 4, rank 2 has 2.
    auto const first = partition<RoundRobinPartitioner>({10, 100, 64, 65, 1}, 3, turn);
    CHECK(first.order == List{0, 3, 1, 4, 2});
    CHECK(first.offsets == List{0, 64, 192, 320, 384});
    CHECK(first.cuts == List{0, 192, 384, 448});
    CHECK(turn == 5);
    // The turn goes on in the next bucket: owners 2, 0.
    auto const second = partition<RoundRobinPartitioner>({10, 100}, 3, turn);
    CHECK(second.order == List{1, 0});
    CHECK(second.offsets == List{0, 128});
    CHECK(second.cuts == List{0, 128, 128, 192});
    CHECK(turn == 7);
}

TEST_CASE("the round-robin partitioner gives empty extents to ranks that have no turn") {
    std::size_t turn = 2;
    CHECK(partition<RoundRobinPartitioner>({7}, 5, turn).cuts == List{0, 0, 0, 64, 64, 64});
    turn = 4;
    CHECK(partition<RoundRobinPartitioner>({7}, 5, turn).cuts == List{0, 0, 0, 0, 0, 64});
    turn = 0;
    CHECK(partition<RoundRobinPartitioner>({7, 8}, 1, turn).cuts == List{0, 128});
}

TEST_CASE("the partitioners say whether they cut parameters and whether their extents are equal") {
    STATIC_REQUIRE(ContiguousPartitioner::cuts_parameters);
    STATIC_REQUIRE(ContiguousPartitioner::is_even);
    STATIC_REQUIRE_FALSE(RoundRobinPartitioner::cuts_parameters);
    STATIC_REQUIRE_FALSE(RoundRobinPartitioner::is_even);
    STATIC_REQUIRE(granularity == 64);
}
