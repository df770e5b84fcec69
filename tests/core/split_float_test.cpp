#include <zero/core/split_float.hpp>

#include "support/catch.hpp"

#include <bit>
#include <cstdint>
#include <limits>
#include <set>
#include <vector>

// A split float joins to the same float, and its half is the float rounded to nearest even.

namespace zero::test::split_float_test {

namespace {

float number(std::uint32_t bits) {
    return std::bit_cast<float>(bits);
}

bool comes_back(std::uint32_t bits) {
    SplitFloat const parts = split(number(bits));
    return std::bit_cast<std::uint32_t>(join(parts)) == bits
           && parts.half == from_float<bfloat16>(number(bits));
}

} // namespace

TEST_CASE("A split float joins to the same bits: zeros, subnormals, powers of two, the largest, "
          "infinities") {
    int wrong = 0;
    for (std::uint32_t const upper :
         {0x0000U, 0x0001U, 0x007fU, 0x0080U, 0x3f7fU, 0x3f80U, 0x3f81U, 0x7f7eU, 0x7f7fU}) {
        for (std::uint32_t lower = 0; lower <= 0xffffU; ++lower) {
            wrong += comes_back(upper << 16U | lower) ? 0 : 1;
            wrong += comes_back(0x80000000U | upper << 16U | lower) ? 0 : 1;
        }
    }
    CHECK(wrong == 0);
    CHECK(comes_back(0x7f800000U));
    CHECK(comes_back(0xff800000U));
}

TEST_CASE("Each of the 65537 floats that round to an even half has a distinct 17-bit remainder") {
    std::set<std::uint16_t> remainders;
    std::set<std::uint32_t> differences;
    int floats = 0;
    for (std::uint32_t bits = 0x3f7f0000U; bits <= 0x3f81ffffU; ++bits) {
        SplitFloat const parts = split(number(bits));
        if (parts.half.bits == 0x3f80U) {
            ++floats;
            remainders.insert(parts.remainder);
            differences.insert(parts.remainder | (parts.is_rounded_up ? 0x10000U : 0U));
        }
    }
    CHECK(floats == 65537);
    CHECK(remainders.size() == 65536);
    CHECK(differences.size() == 65537);
}

TEST_CASE("The two ties beside an even half differ only in whether it was rounded up") {
    SplitFloat const below = split(number(0x3f7f8000U));
    SplitFloat const above = split(number(0x3f808000U));
    CHECK(below.half == above.half);
    CHECK(below.remainder == above.remainder);
    CHECK(below.is_rounded_up);
    CHECK_FALSE(above.is_rounded_up);
}

TEST_CASE("A finite float that rounds to infinity joins to a finite float") {
    SplitFloat const parts = split(std::numeric_limits<float>::max());
    CHECK(parts.half == bfloat16::from_bits(0x7f80U));
    CHECK(join(parts) == std::numeric_limits<float>::max());
}

TEST_CASE(
    "A NaN stays a NaN in the half and after joining, even if its payload lies in the lower half") {
    for (std::uint32_t const bits :
         {0x7fc00000U, 0x7f800001U, 0xff80ffffU, 0x7fffffffU, 0xffffffffU, 0x7fa08000U}) {
        SplitFloat const parts = split(number(bits));
        CHECK(parts.half == from_float<bfloat16>(number(bits)));
        CHECK((parts.half.bits & 0x7fc0U) == 0x7fc0U);
        CHECK(join(parts) != join(parts));
    }
    CHECK(std::bit_cast<std::uint32_t>(join(split(number(0x7fc00000U))))
          == 0x7fc00000U); // the NaN that arithmetic produces
}

} // namespace zero::test::split_float_test
