#include "support/catch.hpp"

#include <zero/layout/piece.hpp>

namespace zero::test::range_test {

TEST_CASE("A range knows its size") {
    STATIC_REQUIRE(Range{3, 10}.size() == 7);
    STATIC_REQUIRE(Range{3, 3}.is_empty());
    STATIC_REQUIRE_FALSE(Range{3, 4}.is_empty());
    STATIC_REQUIRE(Range{}.is_empty());
}

TEST_CASE("The intersection of two ranges is their common part and may be empty") {
    STATIC_REQUIRE(intersection({0, 10}, {5, 20}) == Range{5, 10});
    STATIC_REQUIRE(intersection({5, 20}, {0, 10}) == Range{5, 10});
    STATIC_REQUIRE(intersection({0, 10}, {2, 3}) == Range{2, 3});
    STATIC_REQUIRE(intersection({0, 5}, {5, 9}).is_empty());
    STATIC_REQUIRE(intersection({0, 5}, {7, 9}).is_empty());
    STATIC_REQUIRE(intersection({7, 9}, {0, 5}).is_empty());
    STATIC_REQUIRE(intersection({4, 4}, {0, 9}).is_empty());
}

} // namespace zero::test::range_test
