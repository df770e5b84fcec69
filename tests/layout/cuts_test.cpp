#include "partitions.hpp"

#include "support/catch.hpp"
#include "support/shapes.hpp"

#include <zero/layout/cuts.hpp>
#include <zero/layout/make_layout.hpp>
#include <zero/layout/memory_plan.hpp>
#include <zero/layout/size_capped_bucketer.hpp>

namespace zero::test::cuts_test {

namespace {

/// The contiguous partitioner with the general path: its cuts are listed and checked.
struct ListingPartitioner : ContiguousPartitioner {
    static void partition(std::span<PartitionItem> items, State& state,
                          std::span<std::size_t> cuts) {
        ContiguousPartitioner::partition(items, state, cuts);
    }
};

/// Equal extents, each one granule longer than necessary.
struct WastefulPartitioner : ContiguousPartitioner {
    static void partition(std::span<PartitionItem> items, State& state,
                          std::span<std::size_t> cuts) {
        ContiguousPartitioner::partition(items, state, cuts);
        for (std::size_t rank = 0; rank < cuts.size(); ++rank) {
            cuts[rank] += rank * granularity;
        }
    }
};

template <class P>
FlatLayout layout_of(std::size_t world) {
    return make_layout<P, SizeCappedBucketer>(model_of_sizes({1, 63, 64, 65, 0, 4097, 300}, 2),
                                              {world, 4, false}, {1024});
}

} // namespace

TEST_CASE("Equal extents are computed, and listed for a collective when it needs them") {
    Cuts const even = Cuts::even(3, 128);
    CHECK(even.is_even());
    CHECK(even.size() == 4);
    CHECK(even.back() == 384);
    CHECK(even.listed().empty());
    CHECK(listed(even) == List{0, 128, 256, 384});
    CHECK(even.owner(0) == 0);
    CHECK(even.owner(127) == 0);
    CHECK(even.owner(128) == 1);
    CHECK(even.owner(383) == 2);

    List const offsets{0, 128, 128, 192};
    Cuts const uneven{offsets};
    CHECK_FALSE(uneven.is_even());
    CHECK(listed(uneven) == offsets);
    CHECK(uneven.owner(127) == 0);
    CHECK(uneven.owner(128) == 2);
    CHECK(uneven.owner(191, 1) == 2);

    CutList list(3);
    CHECK(listed(list.of(Cuts::even(3, 0))) == List{0, 0, 0, 0});
    CHECK(listed(list.of(even)) == List{0, 128, 256, 384});
    CHECK(list.of(uneven).data() == offsets.data()); // no copy
    CHECK(listed(list.of(even)) == List{0, 128, 256, 384});
    CHECK(listed(list.of(Cuts::even(3, 64))) == List{0, 64, 128, 192});
}

TEST_CASE("A layout of equal extents stores none of them, and is the layout of listed ones") {
    for (std::size_t const world : {1U, 2U, 3U, 8U, 100U}) {
        FlatLayout const even = layout_of<ContiguousPartitioner>(world);
        FlatLayout const checked = layout_of<ListingPartitioner>(world);
        std::vector<BucketPlan> plans;
        for (std::size_t bucket = 0; bucket < even.buckets(); ++bucket) {
            CHECK(even.bucket(bucket).cuts.empty());
            CHECK(checked.bucket(bucket).cuts.empty());
            BucketPlan plan = even.bucket(bucket);
            plan.cuts = listed(even.cuts(bucket));
            plans.push_back(plan);
        }
        std::vector<ParameterSpec> const specs(even.parameters().begin(), even.parameters().end());
        FlatLayout const by_hand(specs, world, plans);
        CHECK(even.hash() == by_hand.hash());
        CHECK(even.hash() == checked.hash());
        StageRow const row = stage_table[2];
        for (std::size_t const rank : {std::size_t{0}, world - 1}) {
            LayoutTotals const totals = count_layout(even, rank, row, Storage::owned, 0, 0, 0, 300);
            LayoutTotals const expected =
                count_layout(by_hand, rank, row, Storage::owned, 0, 0, 0, 300);
            CHECK(totals.own_content == expected.own_content);
            CHECK(totals.trainable_blocks == expected.trainable_blocks);
            CHECK(totals.own_trainable_blocks == expected.own_trainable_blocks);
            CHECK(totals.wire_elements == expected.wire_elements);
        }
    }
    CHECK(layout_of<ContiguousPartitioner>(2).hash() != layout_of<WastefulPartitioner>(2).hash());
    CHECK(layout_of<WastefulPartitioner>(2).extent(0, 1).size()
          == layout_of<ContiguousPartitioner>(2).extent(0, 1).size() + granularity);
}

TEST_CASE("The layout of a million ranks takes no memory per rank") {
    std::vector<std::size_t> const sizes(100, 10'000'000'019);
    auto const layout = make_layout<ContiguousPartitioner, UnitBucketer>(model_of_sizes(sizes),
                                                                         {1'000'000, 2, false});
    REQUIRE(layout.buckets() == 100);
    CHECK(layout.extent(99, 999'999) == Range{10'047'989'952, 10'048'000'000});
    CHECK(layout.bucket(99).cuts.capacity() == 0);
}

} // namespace zero::test::cuts_test
