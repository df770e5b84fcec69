#include "support/catch.hpp"

#include <zero/layout/padding.hpp>

#include <cstddef>

namespace zero::test::padding_test {

TEST_CASE("Rounding goes to the next multiple and keeps multiples") {
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

TEST_CASE("A parameter is padded to the next multiple of the granularity") {
    STATIC_REQUIRE(padded_size(0) == 0);
    STATIC_REQUIRE(padded_size(1) == granularity);
    STATIC_REQUIRE(padded_size(granularity) == granularity);
    STATIC_REQUIRE(padded_size(granularity + 1) == 2 * granularity);
}

TEST_CASE("Even extents hold all elements and are multiples of the granularity") {
    STATIC_REQUIRE(even_extent(0, 4) == 0);
    STATIC_REQUIRE(even_extent(1, 4) == granularity);
    STATIC_REQUIRE(even_extent(4 * granularity, 4) == granularity);
    STATIC_REQUIRE(even_extent(4 * granularity + 1, 4) == 2 * granularity);
    STATIC_REQUIRE(even_extent(5 * granularity, 1) == 5 * granularity);
}

} // namespace zero::test::padding_test
