#include "support/catch.hpp"

#include <cstdint>
#include <limits>
#include <vector>

#include <zero/core/convert.hpp>
#include <zero/host/instruction_set.hpp>
#include <zero/host/kernels.hpp>

namespace zero::test::count_zeros_kernel_test {

TEMPLATE_TEST_CASE("Zeros of both signs are counted at every length and offset, and nothing else "
                   "is",
                   "", float, bfloat16, float16) {
    using T = TestType;
    float const infinity = std::numeric_limits<float>::infinity();
    std::vector<float> const kinds{
        0.0F, -0.0F, 1.0F, -2.0F, infinity, -infinity, std::numeric_limits<float>::quiet_NaN()};
    std::vector<T> values;
    std::vector<bool> are_zero;
    for (std::size_t i = 0; i < 700; ++i) {
        std::size_t const kind = i * i % 11 % kinds.size();
        values.push_back(from_float<T>(kinds[kind]));
        are_zero.push_back(kind < 2);
    }
    for (std::size_t begin = 0; begin < 9; ++begin) {
        std::int64_t expected = 5;
        for (std::size_t end = begin; end <= values.size(); ++end) {
            std::int64_t count = 5; // the kernel adds
            host::count_zeros(values.data() + begin, end - begin, count);
            REQUIRE(count == expected);
            expected += end < values.size() && are_zero[end] ? 1 : 0;
        }
    }
}

TEST_CASE("The smallest subnormal numbers are no zeros") {
    std::int64_t count = 0;
    std::vector<float> const floats(300, -0x1p-149F);
    host::count_zeros(floats.data(), floats.size(), count);
    std::vector<bfloat16> const upper(300, bfloat16::from_bits(1));
    host::count_zeros(upper.data(), upper.size(), count);
    std::vector<float16> const halves(300, float16::from_bits(0x8001));
    host::count_zeros(halves.data(), halves.size(), count);
    CHECK(count == 0);
}

} // namespace zero::test::count_zeros_kernel_test
