#include "families.hpp"

#include "support/catch.hpp"
#include "support/shapes.hpp"

#include <random>

namespace zero::test::random_models_test {

namespace {

/// A random model: any sizes, units out of order, tied, frozen and grouped parameters.
std::vector<ParameterSpec> random_model(std::mt19937_64& random) {
    auto const below = [&](std::size_t bound) {
        return static_cast<std::size_t>(random() % bound);
    };
    std::vector<ParameterSpec> model;
    std::size_t const parameters = below(14);
    std::size_t const units = 1 + below(5);
    for (std::size_t index = 0; index < parameters; ++index) {
        ParameterSpec spec;
        spec.name = "p" + std::to_string(index);
        std::size_t const kind = below(4);
        spec.elements = kind == 0   ? below(3)
                        : kind == 1 ? 62 + below(5)
                        : kind == 2 ? below(700)
                                    : below(70'000);
        spec.units = {below(units)};
        if (below(5) == 0) {
            std::size_t const other = below(units);
            if (other != spec.units[0]) {
                spec.units.push_back(other);
            }
        }
        spec.group = below(3);
        spec.trainable = below(4) != 0;
        model.push_back(spec);
    }
    return model;
}

} // namespace

TEST_CASE("Every element has one place and one owner in 2000 random models with every partitioner "
          "and bucketer") {
    std::mt19937_64 random(20241);
    std::size_t tied = 0;
    std::size_t frozen = 0;
    std::size_t empty = 0;
    for (int round = 0; round < 2000; ++round) {
        auto const model = random_model(random);
        for (ParameterSpec const& spec : model) {
            tied += spec.units.size() > 1 ? 1 : 0;
            frozen += spec.trainable ? 0 : 1;
            empty += spec.elements == 0 ? 1 : 0;
        }
        std::size_t const world = 1 + random() % 17;
        std::size_t const bucket_bytes = std::size_t{1} << (random() % 20);
        std::string const problem = test::problem_in_any_family(model, world, bucket_bytes);
        if (!problem.empty()) {
            FAIL("seed 20241, round " << round << ": " << problem);
        }
    }
    CHECK(tied > 1000);
    CHECK(frozen > 1000);
    CHECK(empty > 500);
}

TEST_CASE(
    "The layout check finds a lost element, an unaligned start, an overlap and uneven extents") {
    auto const model = test::model_of_sizes({100});
    test::LayoutRules const rules;
    auto const problem = [&](std::vector<Piece> pieces, std::vector<std::size_t> cuts,
                             bool trainable = true) {
        return test::problem_in(
            FlatLayout(model, 2, {{std::move(pieces), std::move(cuts), trainable, false, 0}}),
            rules);
    };
    CHECK(problem({{0, 0, 0, 100}}, {0, 64, 128}) == "");
    CHECK(problem({{0, 0, 0, 99}}, {0, 64, 128})
          == "bucket 0: 'p0' is not whole or does not start at a multiple of 64");
    CHECK(problem({{0, 0, 1, 100}}, {0, 64, 128})
          == "bucket 0: 'p0' is not whole or does not start at a multiple of 64");
    CHECK(problem({{0, 0, 0, 100}, {0, 0, 64, 100}}, {0, 128, 256})
          == "bucket 0: 'p0' overlaps its predecessor or the end");
    CHECK(problem({{0, 0, 0, 100}}, {0, 128, 192}) == "bucket 0: the extents are not equally long");
    CHECK(problem({{0, 0, 0, 100}}, {0, 60, 120})
          == "bucket 0: cut 1 falls or is not a multiple of 64");
    CHECK(problem({{0, 0, 0, 100}}, {0, 128, 256})
          == "bucket 0: has 256 elements with padding, not 128");
    CHECK(problem({{0, 0, 0, 100}}, {0, 64, 128}, false)
          == "bucket 0: 'p0' shares a bucket with parameters of the other trainability");
    CHECK(test::problem_in(FlatLayout(model, 2, {}), rules)
          == "'p0' has 0 owned elements in 0 slices");
    CHECK(test::problem_in(FlatLayout(model, 2, {{{{0, 0, 0, 100}}, {0, 64, 128}}}),
                           {true, true, false, false})
          == "'p0' has 100 owned elements in 2 slices");
}

TEST_CASE("The layout check finds group shards that are unequal, misplaced or padded too much") {
    auto const model = test::model_of_sizes({64, 128});
    auto const problem = [&](std::vector<std::size_t> second, std::vector<std::size_t> first) {
        return test::problem_in(FlatLayout(model, 2,
                                           {{{{1, 0, 0, 128}}, std::move(second), true, false, 0},
                                            {{{0, 0, 0, 64}}, std::move(first), true, false, 0}}),
                                {true, false, true, false, true});
    };
    CHECK(problem({0, 128, 128}, {0, 0, 128}) == "");
    CHECK(problem({0, 64, 128}, {0, 64, 128})
          == "bucket 0: the extent of rank 0 is not its part of the group");
    CHECK(problem({0, 128, 128}, {0, 64, 128})
          == "bucket 1: the extent of rank 0 is not its part of the group");
    CHECK(problem({0, 128, 128}, {0, 0, 64}) == "bucket 1: the group ends at 192");
    CHECK(problem({0, 128, 128}, {0, 0, 192})
          == "bucket 1: the extent of rank 1 is not its part of the group");
    CHECK(problem({0, 128, 192}, {0, 0, 64}) == "bucket 0: has 192 elements with padding, not 128");
}

TEST_CASE("Equal models have equal layouts") {
    std::mt19937_64 random(7);
    for (int round = 0; round < 100; ++round) {
        auto const model = random_model(random);
        std::size_t const world = 1 + random() % 17;
        test::for_each_family(4096, [&](auto const& family) {
            FlatLayout const first = family.make(model, {world, 2, false});
            FlatLayout const second = family.make(model, {world, 2, false});
            CHECK(first.hash() == second.hash());
            CHECK(test::bucket_members(first) == test::bucket_members(second));
        });
    }
}

} // namespace zero::test::random_models_test
