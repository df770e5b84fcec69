#include <zero/ops/norm.hpp>

#include "support/catch.hpp"

#include <cmath>
#include <limits>

namespace zero::test::norm_test {

namespace {

using zero::NormKind;
using zero::ops::NormSum;

constexpr double infinite = std::numeric_limits<double>::infinity();

/// The infinity norm of the numbers.
template <class... Floats>
double largest(Floats... numbers) {
    NormSum sum;
    (sum.add_magnitude(numbers), ...);
    return sum.value(NormKind::infinity, 1.0);
}

TEST_CASE("Every kind of norm is zero without elements", "[ops][norm]") {
    for (auto const kind : {NormKind::l1, NormKind::l2, NormKind::infinity}) {
        CHECK(NormSum{}.value(kind, 3.0) == 0.0);
    }
}

TEST_CASE("The l1 norm is the exact sum and the l2 norm its root, times the factor",
          "[ops][norm]") {
    NormSum sum;
    sum.exact.add(20.0);
    sum.exact.add(16.0);
    CHECK(sum.value(NormKind::l1, 0.5) == 18.0);
    CHECK(sum.value(NormKind::l2, 0.5) == 3.0);
    CHECK(sum.value(NormKind::infinity, 0.5) == 0.0);
    sum.exact.add_non_finite(3);
    CHECK(sum.value(NormKind::l1, 0.5) == infinite);
    CHECK(sum.value(NormKind::l2, 0.5) == infinite);
}

TEST_CASE("The largest magnitude does not depend on sign or order", "[ops][norm]") {
    CHECK(largest(-0.0F) == 0.0);
    CHECK(largest(1.0F, -2.0F, 0.5F) == 2.0);
    CHECK(largest(-2.0F, 0.5F, 1.0F) == 2.0);
    CHECK(largest(0x1p-149F) == 0x1p-149);
    CHECK(largest(-0x1p-149F, 0x1p-148F) == 0x1p-148);
    CHECK(largest(-0x1p-126F, 0x1.fffffcp-127F)
          == 0x1p-126); // the largest subnormal next to the smallest normal number
    CHECK(largest(1.0F, -0x1.fffffep127F) == 0x1.fffffep127);
}

TEST_CASE("A magnitude that is infinite or NaN gives an infinite norm", "[ops][norm]") {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    float const not_a_number = std::numeric_limits<float>::quiet_NaN();
    CHECK(largest(1.0F, infinity) == infinite);
    CHECK(largest(-infinity, 1.0F) == infinite);
    CHECK(largest(not_a_number, 1.0F) == infinite);
    CHECK(largest(1.0F, -not_a_number) == infinite);
}

TEST_CASE("The minimum over ranks of the exchanged values is the largest magnitude of all",
          "[ops][norm]") {
    NormSum first;
    NormSum second;
    first.add_magnitude(-7.0F);
    second.add_magnitude(3.0F);
    first.negative_largest = second.negative_largest < first.negative_largest
                                 ? second.negative_largest
                                 : first.negative_largest;
    CHECK(first.value(NormKind::infinity, 2.0) == 14.0);
    CHECK(second.value(NormKind::infinity, 2.0) == 6.0);
}

} // namespace

} // namespace zero::test::norm_test
