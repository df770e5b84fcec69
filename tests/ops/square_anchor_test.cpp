#include <zero/ops/detail/square_anchor.hpp>
#include <zero/ops/exact_sum.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <random>
#include <vector>

// The proof in square_anchor.hpp, at its limits.

namespace zero::test::square_anchor_test {

namespace {

using Anchor = ops::detail::SquareAnchor<24, 6, 10>; // 64 terms, 1024 elements

/// Returns a magnitude of an exponent field, with the largest significand.
float largest_of(int exponent) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(exponent) << 23U | 0x7fffffU);
}

/// Returns whether 16 accumulators, as the comment describes them, give the exact sum of squares.
bool is_exact(Anchor const& anchor, std::vector<float> const& values) {
    std::vector<double> sums(16, anchor.anchor);
    double rests = 0.0;
    ops::Inspection expected;
    for (std::size_t i = 0; i < values.size(); ++i) {
        double const square = static_cast<double>(values[i]) * static_cast<double>(values[i]);
        double& sum = sums[i % sums.size()];
        double const next = sum + square;
        double const taken = next - sum;
        rests += square - taken;
        sum = next;
        expected.add(square);
    }
    ops::Inspection found;
    double const low = rests + anchor.offset;
    if (low < 0.0 || sums[0] - anchor.anchor < anchor.offset) {
        return false;
    }
    found.add(low);
    for (std::size_t i = 0; i < sums.size(); ++i) { // a sum of all may have more than 53 bits
        found.add(sums[i] - anchor.anchor - (i == 0 ? anchor.offset : 0.0));
    }
    expected.carry();
    found.carry();
    return std::equal(std::begin(found.sums), std::end(found.sums), std::begin(expected.sums));
}

/// Returns 1024 elements: the largest magnitude of an exponent, and some of a smaller exponent.
std::vector<float> mixture(int largest, int smallest, unsigned seed) {
    std::mt19937 engine(seed);
    std::vector<float> values(1024, largest_of(largest));
    for (std::size_t i = 1; i < values.size(); ++i) {
        if (engine() % 2U == 0) {
            auto const significand = static_cast<std::uint32_t>(engine() & 0x7fffffU);
            values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(smallest) << 23U
                                             | significand | 1U);
        }
    }
    return values;
}

} // namespace

TEST_CASE("Sums with an anchor are exact up to the widest range that it serves", "[ops][norm]") {
    int wrong = 0;
    for (int exponent = 1; exponent <= 254; ++exponent) {
        Anchor const anchor(exponent);
        for (int gap = 0; gap <= Anchor::widest && gap <= exponent; ++gap) {
            wrong += anchor.serves(exponent, exponent - gap) ? 0 : 1;
            wrong += is_exact(anchor, mixture(exponent, exponent - gap, 1)) ? 0 : 1;
        }
        CHECK_FALSE(anchor.serves(exponent, exponent - Anchor::widest - 1));
        CHECK_FALSE(anchor.serves(exponent + 1, exponent));
        CHECK_FALSE(anchor.serves(0, 0)); // subnormal numbers alone
    }
    CHECK(wrong == 0);
}

TEST_CASE("An anchor serves elements that are smaller than it was made for", "[ops][norm]") {
    int wrong = 0;
    for (int exponent = Anchor::deepest + 1; exponent <= 254; ++exponent) {
        Anchor const anchor(exponent);
        for (int gap = 0; gap <= Anchor::deepest; ++gap) {
            int const largest = exponent - gap;
            std::vector<float> const one{std::ldexp(1.0F, largest - 127)};
            wrong += anchor.serves(largest, largest) && is_exact(anchor, one) ? 0 : 1;
        }
        CHECK_FALSE(anchor.serves(exponent - Anchor::deepest - 1, exponent - Anchor::deepest - 1));
    }
    CHECK(wrong == 0);
}

TEST_CASE("Far beyond its range an anchor loses bits, so the limit is needed", "[ops][norm]") {
    Anchor const anchor(127);
    CHECK_FALSE(is_exact(anchor, mixture(127, 127 - Anchor::widest - 6, 3)));
    CHECK_FALSE(is_exact(anchor, {std::ldexp(1.0F, -Anchor::deepest - 3)}));
}

} // namespace zero::test::square_anchor_test
