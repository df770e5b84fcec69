#include "support/catch.hpp"

#include <zero/core/error.hpp>
#include <zero/policy/gradient_reduction.hpp>
#include <zero/stage/detail/decision/decide_step.hpp>

#include <limits>
#include <vector>

namespace zero::test::predivide_test {

namespace {

using zero::detail::predivide_factor;

GradientReductionOptions with_predivide(float value) {
    GradientReductionOptions options;
    options.predivide = value;
    return options;
}

} // namespace

TEST_CASE("A float16 payload is divided by the power of two nearest to the root of W") {
    auto const factor = [](std::size_t world) { return predivide_factor({}, world, true); };
    // 2^k up to W = 2 * 4^k, where the root is 2^k * sqrt(2).
    CHECK(factor(1) == 1.0F);
    CHECK(factor(2) == 1.0F);
    CHECK(factor(3) == 2.0F);
    CHECK(factor(4) == 2.0F);
    CHECK(factor(8) == 2.0F);
    CHECK(factor(9) == 4.0F);
    CHECK(factor(16) == 4.0F);
    CHECK(factor(32) == 4.0F);
    CHECK(factor(33) == 8.0F);
    CHECK(factor(64) == 8.0F);
    CHECK(factor(128) == 8.0F);
    CHECK(factor(129) == 16.0F);
    CHECK(factor(512) == 16.0F);
    CHECK(factor(513) == 32.0F);
    CHECK(factor(1024) == 32.0F);
}

TEST_CASE("The factor for float16 is a power of two within sqrt(2) of the root of W, for 1 to 1024 "
          "ranks") {
    for (std::size_t world = 1; world <= 1024; ++world) {
        float const factor = predivide_factor({}, world, true);
        int exponent = 0;
        CHECK(std::frexp(factor, &exponent) == 0.5F);
        double const square = static_cast<double>(factor) * static_cast<double>(factor);
        CHECK(square * 2 >= static_cast<double>(
                  world)); // even for the largest W: no endless loop, no overflow of the integer
        CHECK(square <= 2 * static_cast<double>(world));
    }
}

TEST_CASE("Payloads of float and bfloat16 are not divided") {
    for (std::size_t const world : std::vector<std::size_t>{1, 8, 1024}) {
        CHECK(predivide_factor({}, world, false) == 1.0F);
    }
}

TEST_CASE("An explicit factor is used for every type and number of ranks, power of two or not") {
    for (float const value : {0.25F, 1.0F, 2.0F, 3.0F, 1024.0F}) {
        CHECK(predivide_factor(with_predivide(value), 3, false) == value);
        CHECK(predivide_factor(with_predivide(value), 64, true) == value);
    }
}

TEST_CASE(
    "A factor is rejected with its value if it or its inverse is not a positive normal number") {
    auto const message = [](float value) {
        try {
            (void)predivide_factor(with_predivide(value), 4, true);
        } catch (InvalidArgument const& error) {
            return std::string(error.what());
        }
        return std::string("nothing was thrown");
    };
    std::string const end = "; it and its inverse must be positive normal numbers. A power of "
                            "two divides without rounding.";
    CHECK(message(0.0F) == "zero: predivide is 0" + end);
    CHECK(message(-2.0F) == "zero: predivide is -2" + end);
    CHECK(message(0x1p-130F) == "zero: predivide is 7.34684e-40" + end);
    CHECK(message(0x1p+126F).substr(0, 20) == "nothing was thrown");
    CHECK(message(0x1p+127F).find(end) != std::string::npos);
    CHECK(message(std::numeric_limits<float>::infinity()) == "zero: predivide is inf" + end);
    CHECK(message(std::numeric_limits<float>::quiet_NaN()) == "zero: predivide is nan" + end);
}

TEST_CASE("The default schedule depends on the stage, the default factor on the communication "
          "type, and the result is a mean") {
    GradientReductionOptions const options;
    CHECK(options.kind == ReductionKind::mean);
    CHECK_FALSE(options.schedule.has_value());
    CHECK_FALSE(options.predivide.has_value());
}

} // namespace zero::test::predivide_test
