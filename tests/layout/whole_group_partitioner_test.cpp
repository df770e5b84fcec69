#include "partitions.hpp"

#include "support/catch.hpp"
#include "support/shapes.hpp"

#include <zero/core/error.hpp>
#include <zero/layout/dealt_group_partitioner.hpp>
#include <zero/layout/make_layout.hpp>
#include <zero/layout/size_capped_bucketer.hpp>
#include <zero/layout/whole_group_partitioner.hpp>

namespace zero::test::whole_group_partitioner_test {

using test::List;
using test::partition_group;

TEST_CASE(
    "The whole-group partitioner cuts the flat group into equal shards regardless of buckets") {
    // 128 + 64 + 128 + 0 = 320 elements; two shards of 192.
    auto const three = partition_group<WholeGroupPartitioner>({{100, 1}, {65}, {0}}, 2);
    CHECK(three[0].offsets == List{0, 128});
    CHECK(three[0].cuts == List{0, 192, 192});
    CHECK(three[1].cuts == List{0, 0, 128});
    CHECK(three[2].cuts == List{0, 0, 64}); // only the padding of the group
    auto const two = partition_group<WholeGroupPartitioner>({{100}, {1, 65, 0}}, 2);
    CHECK(two[0].cuts == List{0, 128, 128});
    CHECK(two[1].order == List{0, 1, 2});
    CHECK(two[1].offsets == List{0, 64, 192});
    CHECK(two[1].cuts == List{0, 64, 256});
}

TEST_CASE("A shard of the whole group that spans buckets has an extent in each") {
    // Three shards of 128: the second is the end of the first bucket and the start of the second.
    auto const buckets = partition_group<WholeGroupPartitioner>({{100, 1}, {65, 0}}, 3);
    CHECK(buckets[0].cuts == List{0, 128, 192, 192});
    CHECK(buckets[1].cuts == List{0, 0, 64, 192});
}

TEST_CASE(
    "The whole-group partitioner serves one rank, more ranks than elements, and empty groups") {
    CHECK(partition_group<WholeGroupPartitioner>({{100, 1, 65, 0}}, 1)[0].cuts == List{0, 320});
    CHECK(partition_group<WholeGroupPartitioner>({{100, 1, 65, 0}}, 8)[0].cuts
          == List{0, 64, 128, 192, 256, 320, 384, 448, 512});
    auto const few = partition_group<WholeGroupPartitioner>({{1}, {1}}, 5);
    CHECK(few[0].cuts == List{0, 64, 64, 64, 64, 64});
    CHECK(few[1].cuts == List{0, 0, 64, 128, 192, 256});
    auto const empty = partition_group<WholeGroupPartitioner>({{0}, {0, 0}}, 3);
    CHECK(empty[0].cuts == List{0, 0, 0, 0});
    CHECK(empty[1].cuts == List{0, 0, 0, 0});
}

TEST_CASE("The dealt order is 0, W, 2 W, ..., then 1, W + 1, ..., and so on") {
    List const five{7, 7, 7, 7, 7};
    CHECK(DealtGroupPartitioner::order(five, 1) == List{0, 1, 2, 3, 4});
    CHECK(DealtGroupPartitioner::order(five, 2) == List{0, 2, 4, 1, 3});
    CHECK(DealtGroupPartitioner::order(five, 3) == List{0, 3, 1, 4, 2});
    CHECK(DealtGroupPartitioner::order(five, 7) == List{0, 1, 2, 3, 4});
    CHECK(DealtGroupPartitioner::order({}, 3).empty());
}

TEST_CASE("The dealt group fills its buckets in dealt order and cuts it like the whole group") {
    // Ready order: p4, p3, p2, p1, p0; dealt to two: p4, p2, p0 | p3, p1. 5 * 64 elements, two
    // shards of 192.
    auto const model = test::model_of_sizes({1, 2, 3, 4, 5});
    auto const layout =
        make_layout<DealtGroupPartitioner, SizeCappedBucketer>(model, {2, 4, false}, {2 * 64 * 4});
    REQUIRE(layout.buckets() == 3);
    List parameters;
    for (std::size_t bucket = 0; bucket < 3; ++bucket) {
        for (Piece const& piece : layout.pieces(bucket)) {
            parameters.push_back(piece.parameter);
        }
    }
    CHECK(parameters == List{4, 2, 0, 3, 1});
    CHECK(layout.bucket(0).cuts == List{0, 128, 128});
    CHECK(layout.bucket(1).cuts == List{0, 64, 128});
    CHECK(layout.bucket(2).cuts == List{0, 0, 128});
}

TEST_CASE("Trainable and frozen parameters are two groups that are cut separately") {
    std::vector<ParameterSpec> const model{{"frozen", 100, {0}, 0, false},
                                           {"weight", 200, {0}, 0, true}};
    auto const layout =
        make_layout<WholeGroupPartitioner, SizeCappedBucketer>(model, {2, 4, false});
    REQUIRE(layout.buckets() == 2);
    CHECK(layout.bucket(0).cuts == List{0, 128, 256});
    CHECK(layout.bucket(1).cuts == List{0, 64, 128});
}

TEST_CASE("A partitioner order that is not a permutation is rejected") {
    struct Forgetful : WholeGroupPartitioner {
        static std::vector<std::size_t> order(std::span<std::size_t const>, std::size_t) {
            return {0, 2, 2};
        }
    };
    auto const make = [](std::vector<std::size_t> const& sizes) {
        return make_layout<Forgetful, SizeCappedBucketer>(test::model_of_sizes(sizes),
                                                          {2, 4, false});
    };
    CHECK_THROWS_AS(make({1, 2, 3}), InvalidArgument);
    CHECK_THROWS_WITH(
        make({1, 2, 3}),
        test::contains_text("zero: the partitioner's order of 3 parameters lists 3 numbers, of "
                            "which 2 are indices not listed before; it must list each index below "
                            "3 once."));
    CHECK_THROWS_AS(make({1, 2}), InvalidArgument);
}

TEST_CASE(
    "The group partitioners declare that they cut parameters and the group, unevenly per bucket") {
    STATIC_REQUIRE(WholeGroupPartitioner::cuts_parameters);
    STATIC_REQUIRE(WholeGroupPartitioner::cuts_group);
    STATIC_REQUIRE_FALSE(WholeGroupPartitioner::is_even);
    STATIC_REQUIRE(DealtGroupPartitioner::cuts_parameters);
    STATIC_REQUIRE(DealtGroupPartitioner::cuts_group);
    STATIC_REQUIRE_FALSE(DealtGroupPartitioner::is_even);
}

} // namespace zero::test::whole_group_partitioner_test
