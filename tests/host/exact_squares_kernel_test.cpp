#include "host/inspection.hpp"
#include "host/kernel_inputs.hpp"

#include <zero/host/detail/lanes_avx512.hpp>
#include <zero/host/detail/squares_avx2.hpp>
#include <zero/host/kernels.hpp>

#include "support/catch.hpp"

#include <cmath>
#include <cstdint>
#include <random>
#include <type_traits>
#include <vector>

namespace zero::test::exact_squares_kernel_test {

namespace {

constexpr std::size_t long_range =
    64 * 256 + 512 + 300; // long enough for the sums over many elements, with a partial one

/// Returns elements of one exponent field with random significands and signs: zeros and subnormal
/// numbers for 0, infinities and NaNs for the largest.
template <class T = bfloat16>
std::vector<T> with_exponent(std::size_t n, unsigned exponent, std::mt19937& engine) {
    constexpr unsigned bits = std::is_same_v<T, float16> ? 10 : 7; // of the significand
    std::vector<T> values(n);
    for (auto& value : values) {
        value = T::from_bits(static_cast<std::uint16_t>((engine() & (0x8000U | ((1U << bits) - 1U)))
                                                        | exponent << bits));
    }
    return values;
}

template <class T>
bool is_as_defined(T const* values, std::size_t n) {
    bool are_same = true;
    auto const expected = by_definition(values, n, 70);
    auto const before = host::instruction_set();
    for (auto const set : instruction_sets) {
        if (host::use_instruction_set(set)) {
            Inspection result;
            host::inspect(values, n, 70, result);
            are_same = are_same && same(result, expected);
        }
    }
    host::use_instruction_set(before);
    return are_same;
}

template <class T>
int wrong_exponents(unsigned exponents) {
    std::mt19937 engine(1);
    int wrong = 0;
    for (unsigned exponent = 0; exponent < exponents; ++exponent) {
        auto const values = with_exponent<T>(long_range + 16, exponent, engine);
        wrong += is_as_defined(values.data() + exponent % 16, long_range - exponent % 7) ? 0 : 1;
    }
    return wrong;
}

TEST_CASE("Every exponent of 16 bits gives the sum of the definition, at odd lengths and addresses",
          "[host][kernel][norm]") {
    CHECK(wrong_exponents<bfloat16>(256) == 0);
    CHECK(wrong_exponents<float16>(32) == 0);
}

TEST_CASE("Random float16 of narrow and wide ranges give the sum of the definition",
          "[host][kernel][norm]") {
    std::mt19937 engine(7);
    std::normal_distribution<float> normal;
    int wrong = 0;
    for (int spread = 0; spread <= 24; spread += 2) {
        std::uniform_int_distribution<int> exponent(-spread, 0);
        for (int const scale : {-20, -10, 0, 12}) {
            std::vector<float16> values(20'000);
            for (auto& value : values) { // of the widest and largest some are infinite
                value =
                    engine() % 16U == 0
                        ? float16{}
                        : from_float<float16>(std::ldexp(normal(engine), exponent(engine) + scale));
            }
            wrong += is_as_defined(values.data(), values.size()) ? 0 : 1;
        }
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

/// Checks one implementation of the sums of many squares.
/// @param smallest the smallest power of two whose square is added to 511 ones
template <class Exact, class T>
void require_exact(float smallest) {
    std::vector<T> values(Exact::elements, from_float<T>(1.0F));
    auto const sum_with = [&](float value) {
        values[77] = from_float<T>(value);
        return Exact::sum(values.data());
    };
    double const one_more = to_float(from_float<T>(smallest * 1.0078125F));
    CHECK(sum_with(1.0F) == 512.0);
    CHECK(sum_with(0.0F) == 511.0);
    CHECK(sum_with(-0.0F) == 511.0);
    CHECK(sum_with(-3.0F) == 520.0);
    CHECK(sum_with(smallest) == 511.0 + double{smallest} * double{smallest});
    CHECK(sum_with(static_cast<float>(one_more)) == 511.0 + one_more * one_more);
    CHECK(std::isnan(sum_with(smallest / 2))); // its last bits may be 2^-54 of the sum
    CHECK(std::isnan(sum_with(smallest / 4)));
    CHECK(std::isnan(sum_with(HUGE_VALF)));
    CHECK(std::isnan(sum_with(-HUGE_VALF)));
    CHECK(std::isnan(sum_with(NAN)));
    CHECK(std::isnan(sum_with(-NAN)));
    for (auto& value : values) {
        value = from_float<T>(0.0F);
    }
    CHECK(sum_with(0.0F) == 0.0);
    CHECK(sum_with(3.0F) == 9.0);

    std::mt19937 engine(5);
    std::normal_distribution<float> normal;
    int given = 0;
    for (int block = 0; block < 200; ++block) {
        for (auto& value : values) {
            value = from_float<T>(normal(engine));
        }
        given += std::isnan(Exact::sum(values.data())) ? 0 : 1;
    }
    CHECK(given > 150); // so it is useful for typical gradients
}

TEST_CASE("A sum of many squares is returned if and only if no addition rounds",
          "[host][kernel][norm]") {
    if (host::is_supported(host::InstructionSet::avx2)) {
        require_exact<host::detail::ExactSquares<bfloat16>, bfloat16>(0x1p-15F);
        require_exact<host::detail::ExactSquares<float16>, float16>(0x1p-12F);
    }
    if (host::is_supported(host::InstructionSet::avx512)) {
        require_exact<host::detail::WideExactSquares<bfloat16>, bfloat16>(0x1p-15F);
        require_exact<host::detail::WideExactSquares<float16>, float16>(0x1p-12F);
    }
}

TEST_CASE("Sums of squares of bfloat16 that are subnormal floats are left to the caller",
          "[host][kernel][norm]") {
    if (!host::is_supported(host::InstructionSet::avx2)) {
        return;
    }
    std::vector<bfloat16> values(512, from_float<bfloat16>(0x1p-63F));
    CHECK(host::detail::ExactSquares<bfloat16>::sum(values.data()) == 0x1p-117);
    values[5] = from_float<bfloat16>(0x1.fep-64F);
    CHECK(std::isnan(host::detail::ExactSquares<bfloat16>::sum(values.data())));
    values[5] = from_float<bfloat16>(0x1p63F);
    values[6] = values[5];
    CHECK(std::isnan(host::detail::ExactSquares<bfloat16>::sum(values.data())));
}

#endif

} // namespace

} // namespace zero::test::exact_squares_kernel_test
