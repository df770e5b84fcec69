#include "partitions.hpp"

#include "support/catch.hpp"
#include "support/shapes.hpp"

#include <zero/layout/gather_options.hpp>
#include <zero/layout/make_layout.hpp>
#include <zero/layout/padding.hpp>
#include <zero/layout/per_tensor_partitioner.hpp>

#include <type_traits>

namespace zero::test::per_tensor_partitioner_test {

using test::List;

namespace {

std::vector<List> cuts(List const& sizes, std::size_t world) {
    auto const layout = make_layout<PerTensorPartitioner, ParameterBucketer>(
        test::model_of_sizes(sizes, 4), {world, 4, false});
    std::vector<List> result;
    for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
        CHECK(layout.pieces(bucket).size() == 1);
        CHECK(layout.pieces(bucket)[0].parameter == sizes.size() - 1 - bucket);
        result.push_back(listed(layout.cuts(bucket)));
    }
    return result;
}

} // namespace

TEST_CASE("The per-tensor partitioner cuts every parameter into equal multiples of 64") {
    CHECK(
        cuts({100, 1, 0, 65, 997}, 2)
        == std::vector<List>{{0, 512, 1024}, {0, 64, 128}, {0, 0, 0}, {0, 64, 128}, {0, 64, 128}});
    CHECK(cuts({997, 64}, 3)
          == std::vector<List>{{0, 64, 128, 192}, {0, 384, 768, 1152}}); // 1024 / 3 = 342
    CHECK(cuts({997, 64}, 1) == std::vector<List>{{0, 64}, {0, 1024}});
    CHECK(cuts({}, 4).empty());
}

TEST_CASE("The per-tensor partitioner gives each rank equally many elements of every parameter, "
          "padding included") {
    auto const layout =
        make_layout<PerTensorPartitioner, ParameterBucketer>(test::gpt2_124m(), {8, 4, false});
    CHECK(layout.buckets() == test::gpt2_tensors);
    for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
        for (std::size_t rank = 0; rank < 8; ++rank) {
            CHECK(layout.extent(bucket, rank).size()
                  == round_up(layout.pieces(bucket)[0].elements, 512) / 8);
        }
    }
}

TEST_CASE("The parameter bucketer takes one parameter and serves every stage") {
    std::vector<BucketItem> const items{{0, 2}, {0, 2}, {64, 2}};
    CHECK(ParameterBucketer::take(items, {}, 2) == 1);
    STATIC_REQUIRE_FALSE(ParameterBucketer::may_span_units);
    STATIC_REQUIRE(std::is_same_v<PerTensorPartitioner::RequiredBucketer, ParameterBucketer>);
    STATIC_REQUIRE(PerTensorPartitioner::cuts_parameters);
    STATIC_REQUIRE_FALSE(PerTensorPartitioner::cuts_group);
    STATIC_REQUIRE(PerTensorPartitioner::is_even);
}

} // namespace zero::test::per_tensor_partitioner_test
