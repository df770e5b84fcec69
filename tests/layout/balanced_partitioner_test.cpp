#include "partitions.hpp"

#include "support/catch.hpp"

#include <zero/layout/balanced_partitioner.hpp>
#include <zero/layout/padding.hpp>

#include <algorithm>
#include <random>

namespace zero::test::balanced_partitioner_test {

using test::List;

namespace {

std::vector<std::uint64_t> owners(List const& sizes, std::size_t world) {
    return BalancedPartitioner::begin(sizes, world).owners;
}

using Owners = std::vector<std::uint64_t>;

std::size_t fullest(List const& sizes, Owners const& dealt, std::size_t world) {
    List held(world, 0);
    for (std::size_t index = 0; index < sizes.size(); ++index) {
        held[dealt[index]] += round_up(sizes[index], granularity);
    }
    return *std::max_element(held.begin(), held.end());
}

/// Elements of the fullest rank under the best assignment, found by exhaustive search.
std::size_t best(List const& sizes, std::size_t world) {
    Owners dealt(sizes.size(), 0);
    std::size_t least = fullest(sizes, dealt, world);
    for (std::size_t index = 0; index < dealt.size();) {
        index = 0;
        while (index < dealt.size() && ++dealt[index] == world) {
            dealt[index++] = 0;
        }
        least = std::min(least, fullest(sizes, dealt, world));
    }
    return least;
}

} // namespace

TEST_CASE("The balanced partitioner assigns the largest parameter first, to the rank that holds "
          "the least") {
    // Sizes in multiples of 64: 1, 5, 1, 4, 3, 0. 5 goes to rank 0, 4 and 3 go to rank 1 (sum 7), 1
    // and 1 to rank 0 (sum 7). The empty parameter goes to the lower of equal ranks.
    CHECK(owners({10, 300, 64, 200, 130, 0}, 2) == Owners{0, 0, 0, 1, 1, 0});
    auto const buckets =
        test::partition_group<BalancedPartitioner>({{10, 300, 64}, {200, 130, 0}}, 2);
    CHECK(buckets[0].order == List{0, 1, 2});
    CHECK(buckets[0].offsets == List{0, 64, 384});
    CHECK(buckets[0].cuts == List{0, 448, 448});
    CHECK(buckets[1].order == List{2, 0, 1});
    CHECK(buckets[1].offsets == List{0, 0, 256});
    CHECK(buckets[1].cuts == List{0, 0, 448});
}

TEST_CASE("The balanced partitioner breaks ties by the lower parameter index and the lower rank") {
    CHECK(owners({64, 64, 64, 64, 64}, 3) == Owners{0, 1, 2, 0, 1});
    CHECK(owners({1, 64, 33}, 2) == Owners{0, 1, 0}); // each has 64 elements with padding
    CHECK(owners({65, 64}, 2) == Owners{0, 1});
    CHECK(owners({64, 65}, 2) == Owners{1, 0});
}

TEST_CASE("The balanced partitioner serves one rank, more ranks than parameters, and parameters "
          "without elements") {
    CHECK(owners({7, 700, 0}, 1) == Owners{0, 0, 0});
    CHECK(owners({7, 700}, 5) == Owners{1, 0});
    CHECK(owners({0, 0, 0}, 4) == Owners{0, 0, 0});
    CHECK(owners({}, 4).empty());
    CHECK(test::partition_group<BalancedPartitioner>({{7}}, 3)[0].cuts == List{0, 64, 64, 64});
}

TEST_CASE("The balanced partitioner reaches Graham's worst case: 11 where 9 is possible") {
    List const sizes{5 * 64, 5 * 64, 4 * 64, 4 * 64, 3 * 64, 3 * 64, 3 * 64};
    CHECK(owners(sizes, 3) == Owners{0, 1, 2, 2, 0, 1, 0});
    CHECK(fullest(sizes, owners(sizes, 3), 3) == 11 * 64);
    CHECK(best(sizes, 3) == 9 * 64);
}

TEST_CASE(
    "The fullest rank holds at most 4/3 - 1/(3 W) times as much as under the best assignment") {
    std::mt19937_64 random(42);
    std::size_t worse = 0;
    for (int round = 0; round < 500; ++round) {
        std::size_t const world = 1 + random() % 4;
        List sizes;
        for (std::size_t count = random() % 8; count > 0; --count) {
            sizes.push_back(random() % 2000);
        }
        std::size_t const found = fullest(sizes, owners(sizes, world), world);
        std::size_t const least = best(sizes, world);
        worse += found > least ? 1 : 0;
        CHECK(3 * world * found <= (4 * world - 1) * least);
    }
    CHECK(worse > 10);
}

TEST_CASE("The balanced partitioner declares that it cuts nothing and that extents differ") {
    STATIC_REQUIRE_FALSE(BalancedPartitioner::cuts_parameters);
    STATIC_REQUIRE_FALSE(BalancedPartitioner::cuts_group);
    STATIC_REQUIRE_FALSE(BalancedPartitioner::is_even);
}

} // namespace zero::test::balanced_partitioner_test
