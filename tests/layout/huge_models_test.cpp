#include "families.hpp"

#include "support/catch.hpp"
#include "support/shapes.hpp"

#include <zero/layout/piece.hpp>

namespace zero::test::huge_models_test {

namespace {

constexpr std::size_t two_to_31 = std::size_t{1} << 31U;
constexpr std::size_t two_to_33 = std::size_t{1} << 33U;

} // namespace

TEST_CASE("Parameters of more than 2^31 and 2^33 elements have every element in one place and one "
          "owner") {
    for (std::size_t const world : std::vector<std::size_t>{1, 2, 3, 7, 8, 64, 1000}) {
        for (std::size_t const size :
             {two_to_31 - 1, two_to_31, two_to_31 + 1, two_to_33 - 1, two_to_33, two_to_33 + 1}) {
            CHECK(test::problem_in_any_family(test::model_of_sizes({size, 5, size}), world,
                                              std::size_t{25} << 20U)
                  == "");
        }
    }
}

TEST_CASE("A model of 2^33 + 1 elements has the sizes worked out by hand") {
    // On 8 ranks: 2^33 + 1 is padded to 2^33 + 64. An eighth of it is 2^30 + 8, padded to 2^30 + 64
    // per rank.
    auto const layout = make_layout<ContiguousPartitioner, SizeCappedBucketer>(
        test::model_of_sizes({two_to_33 + 1}), {8, 2, false});
    CHECK(layout.padded_elements() == 8'589'935'104); // 2^33 + 512
    CHECK(layout.extent(0, 3) == Range{3'221'225'664, 4'294'967'552});
    CHECK(layout.content(0, layout.extent(0, 6)) == 1'073'741'888);
    CHECK(layout.content(0, layout.extent(0, 7))
          == 1'073'741'377); // what remains: 2^33 + 1 - 7 * (2^30 + 64)
}

TEST_CASE("Many parameters may have more than 2^33 elements in sum") {
    std::vector<std::size_t> const sizes(100, 100'000'007);
    auto const model = test::model_of_sizes(sizes);
    CHECK(test::problem_in_any_family(model, 16, std::size_t{1} << 32U) == "");
    auto const layout = make_layout<RoundRobinPartitioner, UnitBucketer>(model, {16, 2, false});
    CHECK(layout.first_element(99) == 9'900'000'693);
    CHECK(layout.padded_elements() == 10'000'006'400); // 100,000,064 each
    CHECK(layout.bucket_begin(99) == 9'900'006'336);
}

TEST_CASE("A capacity above 2^32 bytes is not truncated") {
    auto const model = test::model_of_sizes({two_to_31, two_to_31, two_to_31});
    auto const layout =
        make_layout<ContiguousPartitioner, SizeCappedBucketer>(model, {2, 2, false}, {two_to_33});
    REQUIRE(layout.buckets() == 2);
    CHECK(layout.elements(0) == 2 * two_to_31);
    CHECK(layout.elements(1) == two_to_31);
}

} // namespace zero::test::huge_models_test
