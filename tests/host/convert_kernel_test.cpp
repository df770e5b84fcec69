#include "host/kernel_inputs.hpp"

#include <zero/host/kernels.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace zero::test::convert_kernel_test {

namespace {

/// Holds every value of a 16-bit type, by the definition of its format.
template <class T>
double value_by_definition(std::uint16_t bits) {
    constexpr int fraction_bits = std::is_same_v<T, float16> ? 10 : 7;
    constexpr int bias = std::is_same_v<T, float16> ? 15 : 127;
    int const fraction = bits & ((1 << fraction_bits) - 1);
    int const exponent = (bits & 0x7fff) >> fraction_bits;
    double const magnitude = exponent == 0 ? std::ldexp(fraction, 1 - bias - fraction_bits)
                                           : std::ldexp(fraction + (1 << fraction_bits),
                                                        exponent - bias - fraction_bits);
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

template <class T>
constexpr std::uint16_t infinity_bits() {
    return std::is_same_v<T, float16> ? 0x7c00 : 0x7f80;
}

/// Rounds by searching all values of the type: slow, and independent of bit manipulation.
template <class T>
class RoundingByDefinition {
public:
    RoundingByDefinition() {
        for (std::uint32_t bits = 0; bits < infinity_bits<T>(); ++bits) {
            _values.push_back(value_by_definition<T>(static_cast<std::uint16_t>(bits)));
        }
        _values.push_back(
            2.0 * _values.back()
            - _values[_values.size() - 2]); // the limit of infinity, as if the format continued
    }

    [[nodiscard]] std::uint16_t operator()(float x) const {
        auto const sign = static_cast<std::uint16_t>(std::signbit(x) ? 0x8000 : 0);
        double const magnitude = std::fabs(static_cast<double>(x));
        auto const above = std::lower_bound(_values.begin(), _values.end(), magnitude);
        if (above == _values.end()) {
            return static_cast<std::uint16_t>(sign | infinity_bits<T>());
        }
        auto index = static_cast<std::uint32_t>(above - _values.begin());
        if (*above != magnitude) {
            double const to_above = *above - magnitude;
            double const to_below = magnitude - _values[index - 1];
            if (to_below < to_above || (to_below == to_above && index % 2 == 1)) {
                --index;
            }
        }
        return static_cast<std::uint16_t>(sign | index);
    }

private:
    std::vector<double> _values;
};

TEMPLATE_TEST_CASE("All 65536 values of a 16-bit type convert to the float they represent and back",
                   "[host][kernel]", float16, bfloat16) {
    std::vector<TestType> all(65536);
    for (std::size_t i = 0; i < all.size(); ++i) {
        all[i].bits = static_cast<std::uint16_t>(i);
    }
    for (auto const set : instruction_sets) {
        WithInstructionSet const scope(set);
        if (!scope.is_supported()) {
            continue;
        }
        CAPTURE(host::name_of(set));
        std::vector<float> wide(all.size());
        std::vector<TestType> back(all.size());
        host::convert(wide.data(), all.data(), all.size(), 1.0F);
        host::convert(back.data(), wide.data(), all.size(), 1.0F);
        int wrong = 0;
        for (std::size_t i = 0; i < all.size(); ++i) {
            auto const bits = all[i].bits;
            auto const magnitude = static_cast<std::uint16_t>(bits & 0x7fffU);
            if (magnitude > infinity_bits<TestType>()) { // a NaN keeps its sign and payload, and
                                                         // becomes quiet
                auto const quiet = static_cast<std::uint16_t>(
                    bits | (infinity_bits<TestType>() == 0x7c00 ? 0x0200U : 0x0040U));
                wrong += std::isnan(wide[i]) && back[i].bits == quiet ? 0 : 1;
            } else {
                double const expected =
                    magnitude == infinity_bits<TestType>()
                        ? std::copysign(HUGE_VAL, (bits & 0x8000U) != 0 ? -1.0 : 1.0)
                        : value_by_definition<TestType>(bits);
                wrong += static_cast<double>(wide[i]) == expected
                                 && std::signbit(wide[i]) == std::signbit(expected)
                             ? 0
                             : 1;
                wrong += back[i].bits == bits ? 0 : 1;
            }
            wrong += std::bit_cast<std::uint32_t>(wide[i])
                             == std::bit_cast<std::uint32_t>(to_float(all[i]))
                         ? 0
                         : 1;
        }
        CHECK(wrong == 0);
    }
}

TEMPLATE_TEST_CASE("A float is rounded to the nearest 16-bit value, ties to even", "[host][kernel]",
                   float16, bfloat16) {
    RoundingByDefinition<TestType> const reference;
    std::vector<float> values;
    // Around every value and every midpoint of two neighbours.
    for (std::uint32_t bits = 0; bits < infinity_bits<TestType>(); ++bits) {
        auto const low =
            static_cast<float>(value_by_definition<TestType>(static_cast<std::uint16_t>(bits)));
        auto const step =
            value_by_definition<TestType>(static_cast<std::uint16_t>(bits < 2 ? 1 : bits))
            - value_by_definition<TestType>(static_cast<std::uint16_t>(bits < 2 ? 0 : bits - 1));
        auto const middle = static_cast<float>(static_cast<double>(low) + step / 2);
        for (float const x :
             {low, middle, std::nextafter(middle, 0.0F), std::nextafter(middle, HUGE_VALF)}) {
            values.push_back(x);
            values.push_back(-x);
        }
    }
    std::mt19937 engine(5);
    while (values.size() % 8 != 3 || values.size() < 700'000) { // ends with a partial pack
        auto const x = std::bit_cast<float>(static_cast<std::uint32_t>(engine()));
        if (!std::isnan(x)) {
            values.push_back(x);
        }
    }
    for (auto const set : instruction_sets) {
        WithInstructionSet const scope(set);
        if (!scope.is_supported()) {
            continue;
        }
        CAPTURE(host::name_of(set));
        std::vector<TestType> rounded(values.size());
        host::convert(rounded.data(), values.data(), values.size(), 1.0F);
        int wrong = 0;
        for (std::size_t i = 0; i < values.size(); ++i) {
            wrong += rounded[i].bits == reference(values[i]) ? 0 : 1;
            wrong += rounded[i] == from_float<TestType>(values[i]) ? 0 : 1;
        }
        CHECK(wrong == 0);
    }
}

TEMPLATE_TEST_CASE("Every NaN stays a NaN when it is rounded to 16 bits", "[host][kernel]", float16,
                   bfloat16) {
    std::vector<float> values;
    for (std::uint32_t bit = 0; bit < 23; ++bit) {
        values.push_back(std::bit_cast<float>(0x7f800000U | (1U << bit)));
        values.push_back(std::bit_cast<float>(0xff800000U | (1U << bit)));
        values.push_back(std::bit_cast<float>(0xffffffffU >> bit));
    }
    std::erase_if(values, [](float x) { return !std::isnan(x); });
    for (auto const set : instruction_sets) {
        WithInstructionSet const scope(set);
        if (!scope.is_supported()) {
            continue;
        }
        std::vector<TestType> rounded(values.size());
        host::convert(rounded.data(), values.data(), values.size(), 1.0F);
        for (std::size_t i = 0; i < values.size(); ++i) {
            CHECK(std::isnan(to_float(rounded[i])));
            CHECK(rounded[i] == from_float<TestType>(values[i]));
        }
    }
}

TEST_CASE("A conversion multiplies by its factor before it rounds, once", "[host][kernel]") {
    auto const values = kernel_inputs<float>(1003, 1);
    for (auto const set : instruction_sets) {
        WithInstructionSet const scope(set);
        if (!scope.is_supported()) {
            continue;
        }
        std::vector<bfloat16> scaled(values.size());
        host::convert(scaled.data(), values.data(), values.size(), 0.3F);
        std::vector<float> in_place = values;
        host::convert(in_place.data(), in_place.data(), in_place.size(), 0.3F);
        for (std::size_t i = 0; i < values.size(); ++i) {
            REQUIRE(scaled[i] == from_float<bfloat16>(canonical(values[i] * 0.3F)));
            REQUIRE(std::bit_cast<std::uint32_t>(in_place[i])
                    == std::bit_cast<std::uint32_t>(canonical(values[i] * 0.3F)));
        }
    }
}

TEST_CASE("A factor of one changes no bit, not even of a NaN", "[host][kernel]") {
    auto const values = kernel_inputs<float>(1003, 2);
    std::vector<float> copy(values.size());
    host::convert(copy.data(), values.data(), values.size(), 1.0F);
    CHECK(same_bits(copy, values));
    host::convert(copy.data(), copy.data(), copy.size(), 1.0F);
    CHECK(same_bits(copy, values));
}

} // namespace

} // namespace zero::test::convert_kernel_test
