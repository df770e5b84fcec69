#include "host/inspection.hpp"
#include "host/kernel_inputs.hpp"

#include <zero/host/detail/squares_avx2.hpp>
#include <zero/host/kernels.hpp>

#include "support/catch.hpp"

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace zero::test::exact_squares_kernel_test {

namespace {

constexpr std::size_t long_range =
    64 * 256 + 512 + 300; // long enough for the sums over many elements, with a partial one

/// Returns elements of one exponent field with random significands and signs: zeros and subnormal
/// numbers for 0, infinities and NaNs for 255.
std::vector<bfloat16> with_exponent(std::size_t n, unsigned exponent, std::mt19937& engine) {
    std::vector<bfloat16> values(n);
    for (auto& value : values) {
        value =
            bfloat16::from_bits(static_cast<std::uint16_t>((engine() & 0x807fU) | exponent << 7U));
    }
    return values;
}

bool is_as_defined(bfloat16 const* values, std::size_t n) {
    Inspection result;
    host::inspect(values, n, 70, result);
    return same(result, by_definition(values, n, 70));
}

TEST_CASE("Every bfloat16 exponent gives the sum of the definition, at odd lengths and addresses",
          "[host][kernel][norm]") {
    std::mt19937 engine(1);
    int wrong = 0;
    for (unsigned exponent = 0; exponent < 256; ++exponent) {
        auto const values = with_exponent(long_range + 16, exponent, engine);
        wrong += is_as_defined(values.data() + exponent % 16, long_range - exponent % 7) ? 0 : 1;
    }
    CHECK(wrong == 0);
}

TEST_CASE("A small bfloat16 among large ones is not lost, however much smaller it is",
          "[host][kernel][norm]") {
    std::mt19937 engine(2);
    int wrong = 0;
    for (unsigned const high : {60U, 100U, 127U, 200U, 254U}) {
        auto values = with_exponent(long_range, high, engine);
        for (unsigned gap = 1; gap <= 40; ++gap) {
            for (std::size_t i = 0; i < values.size(); i += 301) {
                values[i] = with_exponent(1, high - gap, engine)[0];
            }
            wrong += is_as_defined(values.data(), values.size()) ? 0 : 1;
        }
    }
    CHECK(wrong == 0);
}

TEST_CASE("Zeros do not change the sum beside bfloat16 of any magnitude", "[host][kernel][norm]") {
    std::mt19937 engine(3);
    int wrong = 0;
    for (unsigned exponent = 0; exponent < 256; ++exponent) {
        auto values = with_exponent(long_range, exponent, engine);
        for (auto& value : values) {
            value = engine() % 8U != 0
                        ? bfloat16::from_bits(static_cast<std::uint16_t>(engine() & 0x8000U))
                        : value;
        }
        wrong += is_as_defined(values.data(), values.size()) ? 0 : 1;
    }
    CHECK(wrong == 0);
    std::vector<bfloat16> const zeros(long_range);
    Inspection result;
    host::inspect(zeros.data(), zeros.size(), 0, result);
    CHECK(result.sum_of_squares() == 0.0);
}

TEST_CASE("One non-finite bfloat16 is found among many", "[host][kernel][norm]") {
    std::uint16_t const bad = GENERATE(std::uint16_t{0x7f80}, std::uint16_t{0xff80},
                                       std::uint16_t{0x7fc0}, std::uint16_t{0xff81});
    std::vector<bfloat16> values(long_range, from_float<bfloat16>(0.5F));
    for (std::size_t const place : {0U, 511U, 512U, 5000U, 16895U, 17195U}) {
        values[place] = bfloat16::from_bits(bad);
        Inspection result;
        host::inspect(values.data(), values.size(), 1000, result);
        CHECK(result.non_finite_count() == 1);
        CHECK(result.first_non_finite == 1000 + static_cast<std::int64_t>(place));
        CHECK(result.sum_of_squares() == static_cast<double>(long_range - 1) * 0.25);
        values[place] = from_float<bfloat16>(0.5F);
    }
}

TEST_CASE("Random bfloat16 of narrow and wide ranges give the sum of the definition",
          "[host][kernel][norm]") {
    std::mt19937 engine(4);
    std::normal_distribution<float> normal;
    int wrong = 0;
    for (int spread = 0; spread <= 30; spread += 3) {
        std::uniform_int_distribution<int> exponent(-spread, 0);
        for (int const scale : {-90, -60, 0, 90}) {
            std::vector<bfloat16> values(20'000);
            for (auto& value : values) {
                value = from_float<bfloat16>(std::ldexp(normal(engine), exponent(engine) + scale));
            }
            wrong += is_as_defined(values.data(), values.size()) ? 0 : 1;
        }
    }
    CHECK(wrong == 0);
}

#if ZERO_HOST_HAS_AVX2

TEST_CASE("A sum of many squares is returned if and only if no addition rounds",
          "[host][kernel][norm]") {
    if (!host::is_supported(host::InstructionSet::avx2)) {
        return;
    }
    using host::detail::ExactSquares;
    std::vector<bfloat16> values(ExactSquares::elements, from_float<bfloat16>(1.0F));
    auto const sum_with = [&](float value) {
        values[77] = from_float<bfloat16>(value);
        return ExactSquares::sum(values.data());
    };
    CHECK(sum_with(1.0F) == 512.0);
    CHECK(sum_with(0.0F) == 511.0);
    CHECK(sum_with(-3.0F) == 520.0);
    CHECK(sum_with(0x1p-14F) == 511.0 + 0x1p-28);
    CHECK(sum_with(0x1.02p-14F) == 511.0 + 0x1.02p-14 * 0x1.02p-14);
    CHECK(std::isnan(
        sum_with(0x1p-15F))); // its square may have bits down to 2^-44, below 512 * 2^-52
    CHECK(std::isnan(sum_with(0x1p-130F)));
    CHECK(std::isnan(sum_with(HUGE_VALF)));
    CHECK(std::isnan(sum_with(-HUGE_VALF)));
    CHECK(std::isnan(sum_with(NAN)));

    std::mt19937 engine(5);
    std::normal_distribution<float> normal;
    int given = 0;
    for (int block = 0; block < 200; ++block) {
        for (auto& value : values) {
            value = from_float<bfloat16>(normal(engine));
        }
        given += std::isnan(ExactSquares::sum(values.data())) ? 0 : 1;
    }
    CHECK(given > 180); // so it is useful for typical gradients
}

#endif

} // namespace

} // namespace zero::test::exact_squares_kernel_test
