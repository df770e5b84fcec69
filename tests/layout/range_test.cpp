#include "support/catch.hpp"

#include <zero/layout/range.hpp>

namespace zero::test::range_test {

TEST_CASE("a range knows its size") {
    STATIC_REQUIRE(Range{3, 10}.size() == 7);
    STATIC_REQUIRE(Range{3, 3}.is_empty());
    STATIC_REQUIRE_FALSE(Range{3, 4}.is_empty());
    STATIC_REQUIRE(Range{}.is_empty());
}

TEST_CASE("the intersection of two ranges is their common part, and empty when there is none") {
    STATIC_REQUIRE(intersection({0, 10}, {5, 20}) == Range{5, 10});
    STATIC_REQUIRE(intersection({5, 20}, {0, 10}) == Range{5, 10});
    STATIC_REQUIRE(intersection({0, 10}, {2, 3}) == Range{2, 3});
    STATIC_REQUIRE(intersection({0, 5}, {5, 9}).is_empty());
    STATIC_REQUIRE(intersection({0, 5}, {7, 9}).is_empty());
    STATIC_REQUIRE(intersection({7, 9}, {0, 5}).is_empty());
    STATIC_REQUIRE(intersection({4, 4}, {0, 9}).is_empty());
}

TEST_CASE("rounding goes to the next multiple, and multiples stay") {
    STATIC_REQUIRE(round_up(0, 64) == 0);
    STATIC_REQUIRE(round_up(1, 64) == 64);
    STATIC_REQUIRE(round_up(64, 64) == 64);
    STATIC_REQUIRE(round_up(65, 64) == 128);
    STATIC_REQUIRE(round_up(7, 3) == 9);
    STATIC_REQUIRE(round_down(63, 64) == 0);
    STATIC_REQUIRE(round_down(64, 64) == 64);
    STATIC_REQUIRE(round_down(127, 64) == 64);
    STATIC_REQUIRE(round_up((std::size_t{1} << 33U) + 1, 64) == 8'589'934'656);
    STATIC_REQUIRE(round_down((std::size_t{1} << 33U) + 1, 64) == 8'589'934'592);
}

} // namespace zero::test::range_test
