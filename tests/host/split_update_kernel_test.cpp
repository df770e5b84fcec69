#include "host/kernel_inputs.hpp"

#include <zero/host/kernels.hpp>
#include <zero/host/update.hpp>
#include <zero/ops/adamw.hpp>

#include "support/catch.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace zero::test::split_update_kernel_test {

// Compares weights in parts with a float master and its cast, with every instruction set.
namespace {

/// Stores the old weight in the state and the gradient in the weight.
struct Exchange {
    using policy_category = OptimizerCategory;
    static constexpr std::size_t states = 1;
    struct Hyper {};
    template <class F>
    void operator()(F gradient, F& parameter, F (&state)[states], Hyper const&) const {
        state[0] = parameter;
        parameter = gradient;
    }
};

struct Parts {
    explicit Parts(std::size_t n) : parameter(n), remainder(n), rounded_up((n + 7) / 8) {}
    SplitPointers pointers(std::size_t begin = 0) {
        return {parameter.data() + begin, remainder.data() + begin, rounded_up.data() + begin / 8};
    }

    std::vector<bfloat16> parameter;
    std::vector<std::uint16_t> remainder;
    std::vector<std::uint8_t> rounded_up;
};

/// Writes every float with this upper half into parts and reads the floats back.
/// @return the number of failed comparisons: 0 to 2, one each for the parameters and the floats
int exchange(std::uint32_t upper) {
    constexpr std::size_t n = 65536;
    static Parts parts(n);
    static std::vector<float> values(n), read(n), canonical_values(n);
    static std::vector<bfloat16> cast(n);
    for (std::uint32_t lower = 0; lower < n; ++lower) {
        values[lower] = std::bit_cast<float>(upper << 16U | lower);
        canonical_values[lower] = canonical(values[lower]);
    }
    StatePointers<1, float> const states{{read.data()}};
    host::update<Exchange>(values.data(), parts.pointers(), states, n, 1.0F, {});
    host::convert(cast.data(), canonical_values.data(), n, 1.0F);
    int const wrong = same_bits(parts.parameter, cast) ? 0 : 1;
    host::update<Exchange>(values.data(), parts.pointers(), states, n, 1.0F, {});
    return wrong + (same_bits(read, canonical_values) ? 0 : 1);
}

TEST_CASE("Every lower half of many upper halves survives, and the parameter is the rounded value",
          "[host][kernel]") {
    for (auto const set : instruction_sets) {
        WithInstructionSet const scope(set);
        if (!scope.is_supported()) {
            continue;
        }
        int wrong = 0;
        for (std::uint32_t upper = 0; upper < 0x8000U; upper += 509) {
            wrong += exchange(upper) + exchange(0x8000U | upper);
        }
        for (std::uint32_t const upper : {0U, 1U, 0x7fU, 0x80U, 0x3f7fU, 0x3f80U, 0x7f7eU, 0x7f7fU,
                                          0x7f80U, 0x7f81U, 0x7fbfU, 0x7fc0U, 0x7fffU}) {
            wrong += exchange(upper) + exchange(0x8000U | upper);
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("An update of parts writes each element and no other, at every length",
          "[host][kernel]") {
    auto const hyper = AdamW::hyper({}, 0.01, 3);
    for (auto const set : instruction_sets) {
        WithInstructionSet const scope(set);
        if (!scope.is_supported()) {
            continue;
        }
        int wrong = 0;
        constexpr std::size_t all = 256;
        constexpr std::size_t begin = 64;
        for (std::size_t n = 0; n <= 100; ++n) {
            auto const gradient = kernel_inputs<float>(n, 1);
            auto master = kernel_inputs<float>(n, 2);
            std::vector<bfloat16> parameter(n);
            Parts parts(all);
            for (std::size_t i = 0; i < all; ++i) {
                auto const [half, remainder, is_up] =
                    split(i >= begin && i < begin + n ? canonical(master[i - begin]) : 0x1.00ffp3F);
                parts.parameter[i] = half;
                parts.remainder[i] = remainder;
                parts.rounded_up[i / 8] =
                    static_cast<std::uint8_t>(parts.rounded_up[i / 8] | (is_up ? 1U << i % 8 : 0U));
            }
            std::vector<float> first(n), second(n), first_of_parts(n), second_of_parts(n);
            host::update<AdamW>(gradient.data(), master.data(), parameter.data(),
                                {first.data(), second.data()}, n, 0.5F, hyper);
            host::update<AdamW>(
                gradient.data(), parts.pointers(begin),
                StatePointers<2, float>{{first_of_parts.data(), second_of_parts.data()}}, n, 0.5F,
                hyper);
            for (std::size_t i = 0; i < all; ++i) {
                bool const is_inside = i >= begin && i < begin + n;
                float const expected = is_inside ? master[i - begin] : 0x1.00ffp3F;
                float const found = join({parts.parameter[i], parts.remainder[i],
                                          (parts.rounded_up[i / 8] >> i % 8 & 1U) != 0});
                wrong +=
                    std::bit_cast<std::uint32_t>(found) == std::bit_cast<std::uint32_t>(expected)
                        ? 0
                        : 1;
                wrong +=
                    parts.parameter[i]
                            == (is_inside ? parameter[i - begin] : from_float<bfloat16>(expected))
                        ? 0
                        : 1;
            }
            wrong += same_bits(first, first_of_parts) && same_bits(second, second_of_parts) ? 0 : 1;
        }
        CHECK(wrong == 0);
    }
}

/// Returns the result of an encoding without the 17th bit: the half is rounded to nearest, ties up.
bfloat16 rounded_half_up(float value) {
    return zero::bfloat16::from_bits(
        static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(value) + 0x8000U) >> 16U));
}

TEST_CASE("After each of a thousand AdamW steps the parts equal the float master and its cast",
          "[host][kernel]") {
    constexpr std::size_t n = 278'011;
    std::size_t const steps = host::instruction_set() == host::InstructionSet::baseline ? 20 : 1000;
    std::vector<float> master(n), gradient(n), first(n), second(n), first_of_parts(n),
        second_of_parts(n), joined(n);
    std::vector<bfloat16> parameter(n);
    Parts parts(n);
    std::mt19937 engine(7);
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < n; ++i) {
        parameter[i] = from_float<bfloat16>(0.02F * normal(engine));
        master[i] = to_float(parameter[i]);
        parts.parameter[i] = parameter[i];
        gradient[i] = normal(engine);
    }
    int wrong = 0;
    std::size_t other_with_ties_up = 0;
    for (std::size_t step = 1; step <= steps; ++step) {
        auto const hyper = AdamW::hyper({}, 1e-3, step);
        std::size_t const shift = step * 64 % 4096; // different gradients in every step
        host::update<AdamW>(gradient.data() + shift, master.data(), parameter.data(),
                            {first.data(), second.data()}, n - shift, 1.0F, hyper);
        host::update<AdamW>(
            gradient.data() + shift, parts.pointers(),
            StatePointers<2, float>{{first_of_parts.data(), second_of_parts.data()}}, n - shift,
            1.0F, hyper);
        wrong += same_bits(parts.parameter, parameter) ? 0 : 1;
        if (step % 100 == 0 || step == steps) {
            for (std::size_t i = 0; i < n; ++i) {
                joined[i] = join({parts.parameter[i], parts.remainder[i],
                                  (parts.rounded_up[i / 8] >> i % 8 & 1U) != 0});
                other_with_ties_up += rounded_half_up(master[i]) == parameter[i] ? 0 : 1;
            }
            wrong += same_bits(joined, master) && same_bits(first, first_of_parts)
                             && same_bits(second, second_of_parts)
                         ? 0
                         : 1;
        }
    }
    CHECK(wrong == 0);
    CHECK(other_with_ties_up > 0);
}

} // namespace

} // namespace zero::test::split_update_kernel_test
