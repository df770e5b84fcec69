#include <zero/ops/counter_random.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

// The random numbers do not change between versions, and look like independent fair bits along
// counters, steps and seeds. The bounds are five standard deviations.

namespace zero::test::counter_random_test {

namespace {

constexpr int draws = 1 << 18;

/// The largest deviation of any of the 32 bits from half of all draws.
template <class Draw>
int worst_bit(Draw const& draw) {
    std::array<int, 32> ones{};
    for (std::uint64_t i = 0; i < draws; ++i) {
        std::uint32_t const bits = draw(i);
        for (unsigned bit = 0; bit < 32; ++bit) {
            ones[bit] += static_cast<int>(bits >> bit & 1U);
        }
    }
    int worst = 0;
    for (int const count : ones) {
        worst = std::max(worst, std::abs(count - draws / 2));
    }
    return worst;
}

/// Chi-square of the upper four bits of two draws over 256 cells. The expectation is 255, the
/// standard deviation 22.6.
template <class Draw>
double chi_square(Draw const& draw) {
    std::array<int, 256> cells{};
    for (std::uint64_t i = 0; i < draws; ++i) {
        auto const [a, b] = draw(i);
        ++cells[(a >> 28U) << 4U | b >> 28U];
    }
    double sum = 0.0;
    for (int const count : cells) {
        double const difference = count - draws / 256.0;
        sum += difference * difference / (draws / 256.0);
    }
    return sum;
}

using Pair = std::array<std::uint32_t, 2>;

bool looks_random(double chi) {
    return chi > 255.0 - 5 * 22.6 && chi < 255.0 + 5 * 22.6;
}

} // namespace

TEST_CASE("Random bits are a fixed function of seed, step and counter") {
    STATIC_REQUIRE(ops::mix32(1) == 1753845952U); // the published function
    STATIC_REQUIRE(ops::mix64(1) == 0x5692161d100b05e5U);
    STATIC_REQUIRE(ops::random_bits(ops::random_key(0, 1), 0)
                   != ops::random_bits(ops::random_key(0, 1), 1));
    STATIC_REQUIRE(ops::random_bits(ops::random_key(0, 1), 0)
                   != ops::random_bits(ops::random_key(0, 2), 0));
    STATIC_REQUIRE(ops::random_bits(ops::random_key(0, 1), 0)
                   != ops::random_bits(ops::random_key(1, 1), 0));
    STATIC_REQUIRE(ops::random_bits(ops::random_key(0, 1), 0)
                   != ops::random_bits(ops::random_key(0, 1), std::uint64_t{1} << 32U));
}

TEST_CASE("Each bit is set in half of the draws along counters, steps and seeds, also beyond 2^32 "
          "elements") {
    constexpr int bound = 5 * 256; // sqrt(2^18 / 4)
    CHECK(worst_bit([](std::uint64_t i) { return ops::random_bits(ops::random_key(0, 1), i); })
          < bound);
    CHECK(worst_bit([](std::uint64_t i) {
              return ops::random_bits(ops::random_key(3, 7),
                                      (std::uint64_t{5} << 32U) - draws / 2 + i);
          })
          < bound);
    CHECK(worst_bit([](std::uint64_t i) { return ops::random_bits(ops::random_key(0, i), 12); })
          < bound);
    CHECK(worst_bit([](std::uint64_t i) { return ops::random_bits(ops::random_key(i, 1), 12); })
          < bound);
    CHECK(
        worst_bit([](std::uint64_t i) { return ops::random_bits(ops::random_key(0, 1), i << 32U); })
        < bound);
    CHECK_FALSE(worst_bit([](std::uint64_t i) { return static_cast<std::uint32_t>(i); }) < bound);
}

TEST_CASE("Neighbouring elements, consecutive steps and neighbouring seeds are independent") {
    auto const bits = [](std::uint64_t seed, std::uint64_t step, std::uint64_t i) {
        return ops::random_bits(ops::random_key(seed, step), i);
    };
    CHECK(looks_random(chi_square([&](std::uint64_t i) {
        return Pair{bits(0, 1, i), bits(0, 1, i + 1)};
    })));
    CHECK(looks_random(chi_square([&](std::uint64_t i) {
        return Pair{bits(0, 1, i), bits(0, 1, i + 768)};
    })));
    CHECK(looks_random(chi_square([&](std::uint64_t i) {
        return Pair{bits(0, 1, i), bits(0, 2, i)};
    })));
    CHECK(looks_random(chi_square([&](std::uint64_t i) {
        return Pair{bits(0, i, 40), bits(0, i + 1, 40)};
    })));
    CHECK(looks_random(chi_square([&](std::uint64_t i) {
        return Pair{bits(0, 1, i), bits(1, 1, i)};
    })));
    CHECK(looks_random(chi_square([&](std::uint64_t i) {
        return Pair{bits(0, 1, i), bits(0, 1, i + (std::uint64_t{1} << 32U))};
    })));
    CHECK_FALSE(looks_random(chi_square([&](std::uint64_t i) {
        return Pair{bits(0, 1, i), bits(0, 1, i)};
    })));
}

TEST_CASE("Uniform numbers are multiples of 2^-24 in [0, 1) with the mean and variance of these") {
    double sum = 0.0;
    double squares = 0.0;
    int odd = 0; ///< numbers that are not multiples of 2^-24
    float least = 1.0F;
    float largest = 0.0F;
    for (std::uint64_t i = 0; i < draws; ++i) {
        float const value = ops::uniform(ops::random_key(3, 5), i);
        odd += value * 0x1.0p24F == std::floor(value * 0x1.0p24F) ? 0 : 1;
        sum += static_cast<double>(value);
        squares += static_cast<double>(value) * static_cast<double>(value);
        least = std::min(least, value);
        largest = std::max(largest, value);
    }
    CHECK(odd == 0);
    CHECK(least >= 0.0F);
    CHECK(least < 0.001F);
    CHECK(largest < 1.0F);
    CHECK(largest > 0.999F);
    CHECK(std::abs(sum / draws - 1.0 / 2.0) < 5.0 * std::sqrt(1.0 / 12.0 / draws));
    CHECK(std::abs(squares / draws - 1.0 / 3.0) < 5.0 * std::sqrt(4.0 / 45.0 / draws));
    CHECK(ops::uniform(ops::random_key(3, 5), 7) != ops::uniform(ops::random_key(3, 6), 7));
}

} // namespace zero::test::counter_random_test
