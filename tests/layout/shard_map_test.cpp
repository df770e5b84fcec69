#include "families.hpp"

#include "support/catch.hpp"
#include "support/shapes.hpp"

#include <zero/core/error.hpp>
#include <zero/layout/make_layout.hpp>
#include <zero/layout/piece.hpp>
#include <zero/layout/shard_map.hpp>

#include <random>

namespace zero::test::shard_map_test {

namespace {

/// Compares both directions of the map with the pieces, for every element and all padding. Returns
/// the first difference, or an empty text.
std::string problem_in_map(FlatLayout const& layout) {
    ShardMap const map(layout);
    std::size_t elements = 0;
    for (std::size_t rank = 0; rank < layout.world(); ++rank) {
        std::size_t begin = 0;
        for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
            Range const extent = layout.extent(bucket, rank);
            std::vector<std::optional<ModelElement>> expected(extent.size());
            layout.for_slices(bucket, extent, [&](Piece const& slice) {
                for (std::size_t i = 0; i < slice.elements; ++i) {
                    expected[slice.bucket_begin - extent.begin + i] =
                        ModelElement{slice.parameter, slice.parameter_begin + i};
                }
            });
            for (std::size_t i = 0; i < expected.size(); ++i) {
                ShardElement const here{rank, begin + i};
                if (map.element(here) != expected[i]) {
                    return "offset " + std::to_string(begin + i) + " of rank "
                           + std::to_string(rank) + " is another element";
                }
                if (expected[i]) {
                    ++elements;
                    if (map.owner(*expected[i]) != here) {
                        return "element " + std::to_string(expected[i]->element) + " of parameter "
                               + std::to_string(expected[i]->parameter) + " lies elsewhere";
                    }
                }
            }
            begin += extent.size();
        }
        if (map.elements(rank) != begin) {
            return "rank " + std::to_string(rank) + " owns another number of elements";
        }
    }
    std::size_t placed = 0;
    for (std::size_t index = 0; index < layout.parameters().size(); ++index) {
        placed += layout.parameter_buckets(index).empty() ? 0 : layout.parameter(index).elements;
    }
    return elements == placed ? "" : "an element has no place";
}

std::string problem_in_any_map(std::vector<ParameterSpec> const& model, std::size_t world) {
    std::string first;
    test::for_each_family(1024, [&](auto const& family) {
        std::string const problem = problem_in_map(family.make(model, {world, 4, false}));
        if (first.empty() && !problem.empty()) {
            first = std::string(family.name) + ", " + family.bucketer_name()
                    + ", W = " + std::to_string(world) + ": " + problem;
        }
    });
    return first;
}

} // namespace

TEST_CASE("The shard map of a small model is as worked out by hand") {
    // Ready order: p1 (100 -> 128) and p0 (10 -> 64) in one bucket of 192 -> 256, two shards of
    // 128. Rank 0 owns p1, rank 1 owns p0.
    auto const one = make_layout<ContiguousPartitioner, SingleBucketer>(
        test::model_of_sizes({10, 100}), {2, 4, false});
    ShardMap const map(one);
    CHECK(map.owner({1, 0}) == ShardElement{0, 0});
    CHECK(map.owner({1, 99}) == ShardElement{0, 99});
    CHECK(map.owner({0, 9}) == ShardElement{1, 9});
    CHECK(map.element({1, 9}) == ModelElement{0, 9});
    CHECK(map.element({0, 100}) == std::nullopt);
    CHECK(map.element({1, 10}) == std::nullopt);
    CHECK(map.element({1, 127}) == std::nullopt);
    // One bucket per parameter: rank 1 has the second half of p1, and only padding of p0.
    auto const two = make_layout<ContiguousPartitioner, ParameterBucketer>(
        test::model_of_sizes({10, 100}), {2, 4, false});
    ShardMap const halves(two);
    CHECK(halves.owner({1, 64}) == ShardElement{1, 0});
    CHECK(halves.owner({0, 9}) == ShardElement{0, 73});
    CHECK(halves.element({1, 35}) == ModelElement{1, 99});
    CHECK(halves.element({1, 36}) == std::nullopt);
    CHECK(halves.element({1, 64}) == std::nullopt);
    CHECK(halves.elements(0) == 128);
    CHECK(halves.elements(1) == 128);
    CHECK(shard_begins(two, 1) == std::vector<std::size_t>{0, 64, 128});
}

TEST_CASE("The shard map inverts itself for every element of random models with every partitioner "
          "on 1 to 8 ranks") {
    std::mt19937_64 random(5);
    for (int round = 0; round < 40; ++round) {
        std::vector<std::size_t> sizes;
        for (std::size_t count = random() % 9; count > 0; --count) {
            sizes.push_back(random() % 4 == 0 ? random() % 3 : random() % 600);
        }
        auto model = test::model_of_sizes(sizes, 2);
        for (ParameterSpec& spec : model) {
            spec.trainable = random() % 4 != 0;
        }
        for (std::size_t world = 1; world <= 8; ++world) {
            CHECK(problem_in_any_map(model, world) == "");
        }
    }
}

TEST_CASE(
    "The shard map serves primes, single elements, empty parameters and more ranks than elements") {
    for (std::size_t world = 1; world <= 8; ++world) {
        CHECK(problem_in_any_map(test::model_of_sizes({997, 2, 3, 61, 67, 4099}), world) == "");
        CHECK(problem_in_any_map(test::model_of_sizes({1}), world) == "");
        CHECK(problem_in_any_map(test::model_of_sizes({0, 64, 0, 0, 65, 0}, 2), world) == "");
        CHECK(problem_in_any_map(test::model_of_sizes({0, 0}), world) == "");
        CHECK(problem_in_any_map({}, world) == "");
    }
}

TEST_CASE("The shard map of an adopted block finds pieces, and no owner of frozen parameters") {
    std::vector<ParameterSpec> const model{
        {"a", 300, {0}, 0, true}, {"frozen", 50, {0}, 0, false}, {"b", 777, {1}, 0, true}};
    for (std::size_t world = 1; world <= 4; ++world) {
        auto const layout = make_adopted_layout<SizeCappedBucketer>(
            model, std::vector<std::size_t>{0, 300, 350}, {world, 4, false}, {512});
        CHECK(problem_in_map(layout) == "");
        CHECK(ShardMap(layout).owner({1, 0}) == std::nullopt);
        CHECK(ShardMap(layout).owner({0, 0}) != std::nullopt);
    }
}

TEST_CASE("The shard map rejects elements, ranks and offsets that do not exist") {
    auto const layout = make_layout<ContiguousPartitioner, SingleBucketer>(
        test::model_of_sizes({0, 100}), {2, 4, false});
    ShardMap const map(layout);
    CHECK_THROWS_AS(map.owner({2, 0}), InvalidArgument);
    CHECK_THROWS_WITH(
        map.owner({2, 0}),
        test::contains_text("zero: there is no parameter number 2; the layout has 2."));
    CHECK_THROWS_WITH(map.owner({0, 0}),
                      test::contains_text("zero: parameter 'p0' has no element 0; it has 0."));
    CHECK_THROWS_WITH(map.owner({1, 100}),
                      test::contains_text("zero: parameter 'p1' has no element 100; it has 100."));
    CHECK_THROWS_WITH(map.element({2, 0}),
                      test::contains_text("zero: there is no rank 2 with parameters of type number "
                                          "0; the layout is for 2 ranks and 1 types."));
    CHECK_THROWS_WITH(map.element({1, 64}),
                      test::contains_text("zero: rank 1 has no offset 64; it owns 64 elements."));
    CHECK_THROWS_AS(map.elements(2), InvalidArgument);
}

} // namespace zero::test::shard_map_test
