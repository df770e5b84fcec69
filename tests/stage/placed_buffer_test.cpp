#include "support/catch.hpp"
#include "support/toy_model.hpp"

#include <zero/core/host_memory_resource.hpp>
#include <zero/layout/balanced_partitioner.hpp>
#include <zero/layout/contiguous_partitioner.hpp>
#include <zero/layout/detail/partition/make_buckets.hpp>
#include <zero/layout/gather_options.hpp>
#include <zero/layout/make_layout.hpp>
#include <zero/layout/shard_map.hpp>
#include <zero/layout/size_capped_bucketer.hpp>
#include <zero/stage/detail/memory/placed_buffer.hpp>

// Sharded memory is in the order of the shard map; replicated memory is in the order of the
// buckets.

namespace zero::test::placed_buffer_test {

namespace {

template <class Partitioner>
void check_memory(std::size_t world) {
    FlatLayout const layout =
        make_layout<Partitioner, SizeCappedBucketer>(toy_specs(), {world, 4, false}, {1200});
    ShardMap const map(layout);
    HostMemoryResource memory;
    std::size_t elements = 0;
    for (std::size_t rank = 0; rank < world; ++rank) {
        zero::detail::PlacedBuffer<float> const sharded(
            layout, layout.buckets(), 0, rank, Placement::sharded, memory, BufferKind::parameters);
        zero::detail::PlacedBuffer<float> const trainable(layout, layout.trainable_buckets(), 0,
                                                          rank, Placement::sharded, memory,
                                                          BufferKind::gradients);
        zero::detail::PlacedBuffer<float> const replicated(layout, layout.buckets(), 0, rank,
                                                           Placement::replicated, memory,
                                                           BufferKind::parameters);
        CHECK(sharded.size() == map.elements(rank));
        CHECK(trainable.size() == shard_begins(layout, rank)[layout.trainable_buckets()]);
        // At least the frozen parameter is in rank 0's memory.
        CHECK(trainable.size() < sharded.size() + (rank == 0 ? 0 : 1));
        CHECK(replicated.size() == layout.padded_elements());
        for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
            layout.for_slices(bucket, layout.extent(bucket, rank), [&](Piece const& slice) {
                std::size_t const last = slice.elements - 1;
                ShardElement const expected =
                    map.owner({slice.parameter, slice.parameter_begin + last}).value();
                CHECK(expected.rank == rank);
                CHECK(sharded.at(bucket, slice.bucket_begin + last) - sharded.data()
                      == static_cast<std::ptrdiff_t>(expected.offset));
                CHECK(replicated.at(bucket, slice.bucket_begin) - replicated.data()
                      == static_cast<std::ptrdiff_t>(layout.bucket_begin(bucket)
                                                     + slice.bucket_begin));
                elements += slice.elements;
            });
        }
    }
    CHECK(elements == 300 + 500 + 7 + 129 + 40 + 64 + 0 + 1);
}

} // namespace

TEST_CASE("Sharded memory follows the shard map, and replicated memory follows the buckets") {
    for (std::size_t world = 1; world <= 5; ++world) {
        check_memory<ContiguousPartitioner>(world);
        check_memory<BalancedPartitioner>(world);
    }
}

} // namespace zero::test::placed_buffer_test
