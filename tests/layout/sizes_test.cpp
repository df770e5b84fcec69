#include "families.hpp"
#include "partitions.hpp"

#include "support/catch.hpp"
#include "support/shapes.hpp"

#include <numeric>

namespace zero::test::sizes_test {

namespace {

/// A model with all sizes from 0 to 3W+1, three parameters per unit.
std::vector<ParameterSpec> ascending_model(std::size_t world) {
    std::vector<std::size_t> sizes(3 * world + 2);
    std::iota(sizes.begin(), sizes.end(), std::size_t{0});
    return test::model_of_sizes(sizes, 3);
}

} // namespace

TEST_CASE("Every element has one place and one owner for sizes 0 to 3W+1 on 1 to 17 ranks") {
    for (std::size_t world = 1; world <= 17; ++world) {
        CHECK(test::problem_in_any_family(ascending_model(world), world) == "");
    }
}

TEST_CASE(
    "Every element has one place and one owner for a single parameter of any size around 64") {
    for (std::size_t world = 1; world <= 17; ++world) {
        for (std::size_t const size : std::vector<std::size_t>{0, 1, 2, 3, 5, 31, 61, 63, 64, 65,
                                                               67, 127, 128, 129, 1021, 4093}) {
            CHECK(test::problem_in_any_family(test::model_of_sizes({size}), world) == "");
        }
    }
}

TEST_CASE("Every element has one place and one owner for prime sizes, in units of one and of four "
          "parameters") {
    std::vector<std::size_t> const primes{2,   61,  67,  127,  131,  191,  193,  251,
                                          257, 509, 521, 1021, 1031, 2039, 4099, 8191};
    for (std::size_t world = 1; world <= 17; ++world) {
        CHECK(test::problem_in_any_family(test::model_of_sizes(primes, 1), world) == "");
        CHECK(test::problem_in_any_family(test::model_of_sizes(primes, 4), world) == "");
    }
}

TEST_CASE("A bucket of the sizes 1, 63, 64 and 65 has the extents worked out by hand") {
    // Reverse registration order: 65 -> 128 elements, 64 -> 64, 63 -> 64, 1 -> 64: starts 0, 128,
    // 192, 256; 320 together.
    auto const model = test::model_of_sizes({1, 63, 64, 65});
    auto const layout = make_layout<ContiguousPartitioner, SingleBucketer>(model, {3, 4, false});
    REQUIRE(layout.buckets() == 1);
    // 320 / 3 = 106.7 is rounded up to 128 per rank: 384 elements.
    CHECK(listed(layout.cuts(0)) == std::vector<std::size_t>{0, 128, 256, 384});
    std::vector<std::size_t> parameters;
    std::vector<std::size_t> starts;
    for (Piece const& piece : layout.pieces(0)) {
        parameters.push_back(piece.parameter);
        starts.push_back(piece.bucket_begin);
    }
    CHECK(parameters == std::vector<std::size_t>{3, 2, 1, 0});
    CHECK(starts == std::vector<std::size_t>{0, 128, 192, 256});
    CHECK(layout.content(0, layout.extent(0, 0)) == 65);
    CHECK(layout.content(0, layout.extent(0, 1)) == 127);
    CHECK(layout.content(0, layout.extent(0, 2)) == 1);
    CHECK(layout.padded_elements() == 384);
}

TEST_CASE("Ranks without elements have empty content if there are fewer elements than ranks") {
    // A shard has 64 elements, so all three elements are on rank 0. The other seven ranks hold
    // padding.
    auto const even = make_layout<ContiguousPartitioner, SingleBucketer>(test::model_of_sizes({3}),
                                                                         {8, 4, false});
    CHECK(even.padded_elements() == 512);
    CHECK(even.content(0, even.extent(0, 0)) == 3);
    for (std::size_t rank = 1; rank < 8; ++rank) {
        CHECK(even.extent(0, rank).size() == 64);
        CHECK(even.content(0, even.extent(0, rank)) == 0);
    }
    auto const uneven = make_layout<RoundRobinPartitioner, SingleBucketer>(
        test::model_of_sizes({3}), {8, 4, false});
    CHECK(uneven.padded_elements() == 64);
    CHECK(uneven.extent(0, 0).size() == 64);
    CHECK(uneven.extent(0, 7).is_empty());
}

TEST_CASE("Parameters without elements own nothing but keep a bucket") {
    auto const layout = make_layout<ContiguousPartitioner, UnitBucketer>(
        test::model_of_sizes({0, 7, 0}), {4, 4, false});
    REQUIRE(layout.buckets() == 3);
    CHECK(layout.elements(0) == 0);
    CHECK(layout.elements(1) == 256);
    CHECK(layout.elements(2) == 0);
    CHECK(layout.parameter_buckets(0).front() == 2);
    CHECK(layout.extent(0, 3).is_empty());
}

TEST_CASE("Every element has exactly one owner when counted one by one") {
    std::vector<std::size_t> const sizes{5, 0, 130, 64, 1, 200};
    for (std::size_t world = 1; world <= 9; ++world) {
        auto const layout = make_layout<ContiguousPartitioner, SizeCappedBucketer>(
            test::model_of_sizes(sizes), {world, 4, false}, {1000});
        std::vector<int> owners(400, 0);
        for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
            for (std::size_t element = 0; element < layout.elements(bucket); ++element) {
                for (std::size_t rank = 0; rank < world; ++rank) {
                    auto const extent = layout.extent(bucket, rank);
                    for (Piece const& piece : layout.pieces(bucket)) {
                        bool const is_in_piece = element >= piece.bucket_begin
                                                 && element < piece.bucket_begin + piece.elements;
                        if (is_in_piece && element >= extent.begin && element < extent.end) {
                            ++owners[layout.first_element(piece.parameter) + element
                                     - piece.bucket_begin];
                        }
                    }
                }
            }
        }
        CHECK(owners == std::vector<int>(400, 1));
    }
}

} // namespace zero::test::sizes_test
