#include "host/kernel_inputs.hpp"

#include <zero/host/kernels.hpp>
#include <zero/host/update.hpp>
#include <zero/ops/adamw.hpp>
#include <zero/ops/block_scale.hpp>
#include <zero/ops/power_codes.hpp>
#include <zero/ops/sgd.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

namespace zero::test::state_types_kernel_test {

// Compares 16-bit and 8-bit states with an equivalent scalar loop, with every instruction set and
// length, and with float states.
namespace {

constexpr std::size_t block = 64;

/// The states of one slice, read and written per element. Shares only the conversions with the
/// library.
/// @tparam top exponent of the largest value of a block, @tparam least that of the least code
template <class S, int top, int least>
struct BlockArray {
    using Type = S;
    explicit BlockArray(std::size_t n) : values(n), scales((n + block - 1) / block, 1.0F) {}

    [[nodiscard]] float at(std::size_t i) const { return to_float(values[i]) * scales[i / block]; }

    /// @param round rounds element i to float16
    template <class Round>
    void assign(std::vector<float> const& wide, Round const& round) {
        for (std::size_t begin = 0; begin < wide.size(); begin += block) {
            std::size_t const end = std::min(wide.size(), begin + block);
            float largest = 0.0F;
            for (std::size_t i = begin; i < end; ++i) {
                largest = std::isfinite(wide[i]) ? std::max(largest, std::fabs(wide[i])) : largest;
            }
            int const exponent = largest == 0.0F ? 0 : std::max(std::ilogb(largest) - top, -126);
            scales[begin / block] = std::ldexp(1.0F, exponent);
            for (std::size_t i = begin; i < end; ++i) {
                float const scaled = std::ldexp(wide[i], -exponent);
                float const smallest = std::ldexp(1.0F, least);
                bool const vanishes = wide[i] != 0.0F && std::fabs(scaled) < smallest;
                values[i] = vanishes ? from_float<S>(std::copysign(smallest, wide[i]))
                                     : round(canonical(scaled), i);
            }
        }
    }

    std::vector<S> values;
    std::vector<float> scales;
};
using ScaledArray = BlockArray<float16, 14, -24>;

/// States in 8 bits, by the functions of one element.
struct EightBits {
    using Type = power8;
    explicit EightBits(std::size_t n) : values(n), scales((n + block - 1) / block, 1.0F) {}

    [[nodiscard]] float at(std::size_t i) const {
        return ops::state_value(values[i], scales[i / block]);
    }

    template <class Round>
    void assign(std::vector<float> const& wide, Round const& round) {
        for (std::size_t begin = 0; begin < wide.size(); begin += block) {
            std::size_t const end = std::min(wide.size(), begin + block);
            float largest = 0.0F;
            bool is_signed = false;
            for (std::size_t i = begin; i < end; ++i) {
                largest = std::isfinite(wide[i]) ? std::max(largest, std::fabs(wide[i])) : largest;
                is_signed = is_signed || wide[i] < 0.0F;
            }
            float const scale = ops::state_scale<power8>(largest, is_signed);
            scales[begin / block] = scale;
            float const inverse = ops::inverse_state_scale<power8>(scale);
            for (std::size_t i = begin; i < end; ++i) {
                values[i] = round(ops::power_place(wide[i], inverse, is_signed), i);
            }
        }
    }

    std::vector<power8> values;
    std::vector<float> scales;
};

template <class S>
struct PlainArray {
    using Type = S;
    explicit PlainArray(std::size_t n) : values(n) {}
    [[nodiscard]] float at(std::size_t i) const { return to_float(values[i]); }
    template <class Round>
    void assign(std::vector<float> const& wide, Round const& round) {
        for (std::size_t i = 0; i < wide.size(); ++i) {
            values[i] = round(canonical(wide[i]), i);
        }
    }
    std::vector<S> values;
};

template <class S, int top, int least>
ScaledStatePointers<2, S> pointers(std::array<BlockArray<S, top, least>, 2>& states) {
    ScaledStatePointers<2, S> at;
    for (std::size_t s = 0; s < 2; ++s) {
        at.states[s] = states[s].values.data();
        at.scales[s] = states[s].scales.data();
    }
    return at;
}
ScaledStatePointers<2, power8> pointers(std::array<EightBits, 2>& states) {
    return {{{states[0].values.data(), states[1].values.data()}},
            {states[0].scales.data(), states[1].scales.data()}};
}
template <class S>
StatePointers<2, S> pointers(std::array<PlainArray<S>, 2>& states) {
    return {{states[0].values.data(), states[1].values.data()}};
}

template <class S, int top, int least>
bool same(BlockArray<S, top, least> const& a, BlockArray<S, top, least> const& b) {
    return same_bits(a.values, b.values) && same_bits(a.scales, b.scales);
}
bool same(EightBits const& a, EightBits const& b) {
    return a.values == b.values && same_bits(a.scales, b.scales);
}
template <class S>
bool same(PlainArray<S> const& a, PlainArray<S> const& b) {
    return same_bits(a.values, b.values);
}

/// Rounds the states of a step to nearest.
struct Nearest {
    template <class Pointers>
    static Pointers const& pointers(Pointers const& at, std::uint64_t) {
        return at;
    }
    template <class S>
    static S round(float value, std::size_t, std::size_t, std::uint64_t) {
        return from_float<S>(value);
    }
};

/// Rounds them stochastically. Two states share 32 random bits of an element, the second one with
/// the halves exchanged.
struct Stochastic {
    static constexpr std::uint64_t first = (std::uint64_t{5} << 32U) - 99;
    template <class Pointers>
    static StochasticStates<Pointers> pointers(Pointers const& at, std::uint64_t key) {
        return {at, first, key};
    }
    template <class S>
    static S round(float value, std::size_t state, std::size_t i, std::uint64_t key) {
        std::uint32_t const random =
            ops::random_bits(ops::random_key(key, 1 + state / 2), first + i);
        std::uint32_t const own = state % 2 == 0 ? random : random << 16U | random >> 16U;
        if constexpr (std::is_same_v<S, power8>) {
            return ops::round_place(value, own);
        } else {
            return ops::round_stochastically<S>(value, own);
        }
    }
};

/// Runs AdamW steps at each length with the kernel and the scalar loop. @return the differences
template <class States, class A, class Rounding = Nearest>
int differences(float gradient_size) {
    int wrong = 0;
    for (auto const set : instruction_sets) {
        WithInstructionSet const scope(set);
        for (std::size_t n = 0; scope.is_supported() && n <= 200; ++n) {
            std::array<States, 2> expected{States(n), States(n)};
            auto master = kernel_inputs<float>(n, 3);
            auto expected_master = master;
            std::vector<bfloat16> parameter(n), expected_parameter(n);
            auto found = expected;
            for (std::uint32_t step = 1; step <= 3; ++step) {
                auto gradient = kernel_inputs<A>(n, step);
                auto const hyper = AdamW::hyper({}, 0.01, step);
                host::update<AdamW>(
                    gradient.data(),
                    MasterPointers<float, bfloat16>{master.data(), parameter.data()},
                    Rounding::pointers(pointers(found), 7000 + step), n, gradient_size, hyper);
                std::array<std::vector<float>, 2> wide{std::vector<float>(n),
                                                       std::vector<float>(n)};
                for (std::size_t i = 0; i < n; ++i) {
                    float state[2] = {expected[0].at(i), expected[1].at(i)};
                    AdamW{}(ops::mul(to_float(gradient[i]), gradient_size), expected_master[i],
                            state, hyper);
                    expected_master[i] = canonical(expected_master[i]);
                    expected_parameter[i] = from_float<bfloat16>(expected_master[i]);
                    wide[0][i] = state[0];
                    wide[1][i] = state[1];
                }
                for (std::size_t s = 0; s < 2; ++s) {
                    expected[s].assign(wide[s], [&](float value, std::size_t i) {
                        return Rounding::template round<typename States::Type>(value, s, i,
                                                                               7000 + step);
                    });
                }
                wrong += same(found[0], expected[0]) && same(found[1], expected[1]) ? 0 : 1;
                wrong +=
                    same_bits(master, expected_master) && same_bits(parameter, expected_parameter)
                        ? 0
                        : 1;
            }
        }
    }
    return wrong;
}

/// Writes values as states: the functor stores the gradient in the state.
struct Keep {
    using policy_category = OptimizerCategory;
    static constexpr std::size_t states = 1;
    struct Hyper {};
    template <class F>
    void operator()(F gradient, F&, F (&state)[states], Hyper const&) const {
        state[0] = gradient;
    }
};

template <class States, class Rounding = Nearest>
States kept(std::vector<float> const& values) {
    using S = typename States::Type;
    States state(values.size());
    std::vector<float> parameter(values.size());
    ScaledStatePointers<1, S> at;
    at.states = {state.values.data()};
    at.scales = {state.scales.data()};
    host::update<Keep>(values.data(), MasterPointers<float, float>{parameter.data(), nullptr},
                       Rounding::pointers(at, 77), values.size(), 1.0F, {});
    return state;
}

TEST_CASE("States in bfloat16 give the bits of the functor applied element by element",
          "[host][kernel]") {
    CHECK(differences<PlainArray<bfloat16>, float>(0.125F) == 0);
    CHECK(differences<PlainArray<bfloat16>, bfloat16>(1e-6F) == 0);
    CHECK(differences<PlainArray<float>, float>(0.125F) == 0);
}

TEST_CASE("States in scaled float16 give the bits of the functor applied element by element",
          "[host][kernel]") {
    CHECK(differences<ScaledArray, float>(0.125F) == 0);
    CHECK(differences<ScaledArray, bfloat16>(1e-18F)
          == 0); // second moments far below the range of float16, some subnormal
}

TEST_CASE(
    "States that are rounded stochastically take the random bits of the element, the state and "
    "the step",
    "[host][kernel]") {
    CHECK(differences<PlainArray<bfloat16>, float, Stochastic>(0.125F) == 0);
    CHECK(differences<PlainArray<bfloat16>, bfloat16, Stochastic>(1e-6F) == 0);
    CHECK(differences<ScaledArray, float, Stochastic>(0.125F) == 0);
    CHECK(differences<ScaledArray, bfloat16, Stochastic>(1e-18F) == 0);
    CHECK(differences<EightBits, float, Stochastic>(0.125F) == 0);
    CHECK(differences<EightBits, bfloat16, Stochastic>(1e-18F) == 0);
}

/// An optimizer with three states, which are sums of the gradient.
struct ThreeSums {
    using policy_category = OptimizerCategory;
    static constexpr std::size_t states = 3;
    struct Hyper {};
    template <class F>
    void operator()(F gradient, F&, F (&state)[states], Hyper const&) const {
        for (F& sum : state) {
            sum = ops::add(sum, gradient);
        }
    }
};

TEST_CASE("Steps below half a unit survive on average in each of three states, rounded "
          "independently, and a range may be cut anywhere",
          "[host][kernel]") {
    constexpr std::size_t n = 4096;
    std::vector<float> const gradient(n, 0x1p-11F); // an eighth of half a unit of 1
    std::vector<float> weight(n);
    auto const run = [&](std::vector<std::size_t> const& cuts) {
        std::vector<bfloat16> sums(3 * n, from_float<bfloat16>(1.0F));
        for (std::uint64_t step = 1; step <= 100; ++step) {
            for (std::size_t part = 0; part + 1 < cuts.size(); ++part) {
                bfloat16* const at = sums.data() + cuts[part];
                host::update<ThreeSums>(
                    gradient.data(), MasterPointers<float, float>{weight.data(), nullptr},
                    StochasticStates<StatePointers<3, bfloat16>>{
                        {{at, at + n, at + 2 * n}}, 1000 + cuts[part], ops::random_key(0, step)},
                    cuts[part + 1] - cuts[part], 1.0F, {});
            }
        }
        return sums;
    };
    auto const sums = run({0, n});
    CHECK(same_bits(sums, run({0, 3, 64, 65, 500, n})));
    std::array<double, 3> mean{};
    std::array<double, 3> together{};
    for (std::size_t i = 0; i < n; ++i) {
        std::array<double, 3> value{};
        for (std::size_t s = 0; s < 3; ++s) {
            value[s] = static_cast<double>(to_float(sums[s * n + i])) - 1.0 - 100 * 0x1p-11;
            mean[s] += value[s] / n;
        }
        for (std::size_t s = 0; s < 3; ++s) {
            together[s] += value[s] * value[(s + 1) % 3] / n;
        }
    }
    // The variance of a sum is 100 * 2^-11 * (2^-7 - 2^-11); five standard deviations.
    constexpr double variance = 100 * 0x1p-11 * (0x1p-7 - 0x1p-11);
    for (std::size_t s = 0; s < 3; ++s) {
        CHECK(std::fabs(mean[s]) < 5 * std::sqrt(variance / n));
        CHECK(std::fabs(together[s]) < 5 * variance / std::sqrt(static_cast<double>(n)));
    }
}

TEST_CASE(
    "The scale moves the largest magnitude of a block between 2^14 and 2^15 and is 1 for zeros",
    "[host][kernel]") {
    std::vector<float> values(3 * block, 0.0F);
    values[5] = -0x1.8p100F; // a block that float16 could not hold
    values[6] = 0x1p80F;
    values[2 * block + 1] = 0x1p-149F; // a block of one subnormal float
    ScaledArray const state = kept<ScaledArray>(values);
    CHECK(state.scales == std::vector<float>{0x1p86F, 1.0F, 0x1p-126F});
    CHECK(to_float(state.values[5]) == -0x1.8p14F);
    CHECK(state.at(6) == 0x1p80F);
    CHECK(state.at(2 * block + 1) == 0x1p-149F);
}

TEST_CASE(
    "Only a value that rounds to 2^128 becomes infinite, and the scale ignores non-finite values",
    "[host][kernel]") {
    std::vector<float> values(2 * block, 1.0F);
    values[0] = 0x1.ffdp127F; // rounds down to 11 bits
    values[block] = std::numeric_limits<float>::infinity();
    values[block + 1] = std::numeric_limits<float>::quiet_NaN();
    values[block + 2] = 0x1.fffffep0F;
    ScaledArray const state = kept<ScaledArray>(values);
    CHECK(state.at(0) == 0x1.ffcp127F);
    CHECK(state.at(block) == std::numeric_limits<float>::infinity());
    CHECK(std::isnan(state.at(block + 1)));
    CHECK(state.at(block + 2) == 2.0F);
    CHECK(state.at(block + 3) == 1.0F);
    CHECK(state.scales[1] == 0x1p-14F);
}

TEST_CASE("A non-zero state is never stored as zero", "[host][kernel]") {
    std::vector<float> values(block, 0.0F);
    values[0] = 0x1p120F;
    values[1] = 0x1p-149F;
    values[2] = -0x1p60F;
    values[3] = -0.0F;
    ScaledArray const state = kept<ScaledArray>(values);
    CHECK(state.values[0].bits == 0x7400U); // 2^14
    CHECK(state.values[1].bits == 0x0001U);
    CHECK(state.values[2].bits == 0x8001U);
    CHECK(state.values[3].bits == 0x8000U);
    CHECK(state.values[4].bits == 0x0000U);
}

TEST_CASE("The error of a stored state is at most 2^-11 of itself or 2^-38 of the largest in its "
          "block, a tight bound",
          "[host][kernel]") {
    std::mt19937 engine(5);
    std::uniform_real_distribution<float> exponent(-60.0F, 20.0F);
    std::vector<float> values(64 * block);
    for (auto& value : values) {
        value = std::exp2(exponent(engine)) * (engine() % 2 == 0 ? 1.0F : -1.0F);
    }
    ScaledArray const state = kept<ScaledArray>(values);
    double worst = 0.0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        float largest = 0.0F;
        for (std::size_t j = i / block * block; j < i / block * block + block; ++j) {
            largest = std::max(largest, std::fabs(values[j]));
        }
        double const bound = std::max(0x1p-11 * std::fabs(static_cast<double>(values[i])),
                                      0x1p-38 * static_cast<double>(largest));
        worst = std::max(
            worst,
            std::fabs(static_cast<double>(state.at(i)) - static_cast<double>(values[i])) / bound);
    }
    CHECK(worst <= 1.0);
    CHECK(worst > 0.9);
}

/// Returns the largest error of 8-bit states relative to a bound.
template <class Bound>
double worst_error(std::vector<float> const& values, Bound const& bound) {
    auto const state = kept<EightBits, Stochastic>(values);
    double worst = 0.0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        double largest = 0.0;
        for (std::size_t j = i / block * block; j < i / block * block + block; ++j) {
            largest = std::max(largest, std::fabs(static_cast<double>(values[j])));
        }
        double const value = std::fabs(static_cast<double>(values[i]));
        double const error =
            std::fabs(static_cast<double>(state.at(i)) - static_cast<double>(values[i]));
        worst = std::max(worst, error / bound(value / largest) / value);
    }
    return worst;
}

/// Returns random numbers from 2^lowest to 1.
std::vector<float> random_values(float lowest, bool are_signed) {
    std::mt19937 engine(6);
    std::uniform_real_distribution<float> exponent(lowest, 0.0F);
    std::vector<float> values(1024 * block);
    for (auto& value : values) {
        bool const is_negative = are_signed && engine() % 2 == 0;
        value = std::exp2(exponent(engine)) * (is_negative ? -1.0F : 1.0F);
    }
    return values;
}

TEST_CASE(
    "The error of an 8-bit state is less than the distance of two codes: (1 + 1 / k)^p - 1 of "
    "itself, for k = 254 (x / largest)^(1 / 8) without signs and 127 (x / largest)^(1 / 4) with "
    "them, a tight bound",
    "[host][kernel]") {
    auto const bound = [](double levels, double power, double most) {
        return [=](double ratio) {
            double const below = std::floor(levels * std::pow(ratio, 1 / power) * 0.9999);
            return std::min(std::pow(1 + 1 / std::max(below, 1.0), power) - 1, most);
        };
    };
    double const second = worst_error(random_values(-40.0F, false), bound(254, 8, 1e9));
    double const first = worst_error(random_values(-24.0F, true), bound(127, 4, 1e9));
    CAPTURE(second, first);
    CHECK(second <= 1.0);
    CHECK(second > 0.9);
    CHECK(first <= 1.0);
    CHECK(first > 0.9);
    // 11 % down to 1e-4 of the largest, and to 1e-2 with signs
    CHECK(worst_error(random_values(-13.2F, false), [](double) { return 0.11; }) <= 1.0);
    CHECK(worst_error(random_values(-6.6F, true), [](double) { return 0.11; }) <= 1.0);
    CHECK(worst_error(random_values(-24.0F, true), [](double) { return 0.11; }) > 1.0);
}

TEST_CASE("An 8-bit state that is infinite or NaN becomes NaN, its block keeps its values, and no "
          "non-zero state becomes zero",
          "[host][kernel]") {
    for (float const sign : {1.0F, -1.0F}) {
        std::vector<float> values(2 * block, sign);
        values[3] = -std::numeric_limits<float>::infinity();
        values[4] = std::numeric_limits<float>::quiet_NaN();
        values[block + 1] = sign * 0x1.fffffep127F;
        values[block + 2] = sign * 0x1p-149F;
        values[block + 3] = 0.0F;
        auto const state = kept<EightBits, Stochastic>(values);
        CHECK(std::isnan(state.at(3)));
        CHECK(std::isnan(state.at(4)));
        CHECK(std::fabs(state.at(0) - sign) < 1e-5F);
        CHECK(std::isfinite(state.at(block + 1)));
        CHECK(std::fabs(state.at(block + 1)) > 0x1.dp127F);
        CHECK(state.at(block + 2) * sign > 0.0F);
        CHECK(state.at(block + 3) == 0.0F);
    }
    auto const zeros = kept<EightBits, Stochastic>(std::vector<float>(block, 0.0F));
    CHECK(zeros.at(0) == 0.0F);
    CHECK(zeros.at(63) == 0.0F);
}

TEST_CASE("The mean of an 8-bit state over random bits is the state", "[host][kernel]") {
    for (float const value : {0.7F, 0.01F, -0.3F, -0.001F}) {
        bool const is_signed = value < 0.0F;
        float const scale = ops::state_scale<power8>(1.0F, is_signed);
        float const place =
            ops::power_place(value, ops::inverse_state_scale<power8>(scale), is_signed);
        double sum = 0.0;
        double squares = 0.0;
        constexpr int draws = 1 << 16;
        for (std::uint64_t i = 0; i < draws; ++i) {
            auto const code = ops::round_place(place, ops::random_bits(ops::random_key(9, 4), i));
            auto const found = static_cast<double>(ops::state_value(code, scale));
            sum += found / draws;
            squares += found * found / draws;
        }
        double const deviation = std::sqrt((squares - sum * sum) / draws);
        CHECK(std::fabs(sum - static_cast<double>(value)) < 5 * deviation);
        CHECK(std::fabs(sum - static_cast<double>(value) * 1.01) > 5 * deviation);
    }
}

TEST_CASE("Every 8-bit code is unchanged for all random bits", "[host][kernel]") {
    for (int code = -128; code <= 127; ++code) {
        auto const place = static_cast<float>(code);
        CHECK(ops::round_place(place, 0U) == power8(code));
        CHECK(ops::round_place(place, ~0U) == power8(code));
    }
}

/// Returns the relative distance of AdamW's parameters after 200 steps from the parameters with
/// float states.
template <class States>
double distance_from_float() {
    constexpr std::size_t n = 1000;
    std::array<States, 2> states{States(n), States(n)};
    std::array<PlainArray<float>, 2> wide{PlainArray<float>(n), PlainArray<float>(n)};
    std::vector<float> parameter(n, 0.0F), exact(n, 0.0F), gradient(n);
    std::mt19937 engine(11);
    std::normal_distribution<float> normal;
    for (std::uint32_t step = 1; step <= 200; ++step) {
        for (auto& value : gradient) {
            value = 1e-4F * (normal(engine) + 0.5F); // squares below the range of float16
        }
        auto const hyper = AdamW::hyper({}, 1e-3, step);
        host::update<AdamW>(gradient.data(),
                            MasterPointers<float, float>{parameter.data(), nullptr},
                            pointers(states), n, 1.0F, hyper);
        host::update<AdamW>(gradient.data(), MasterPointers<float, float>{exact.data(), nullptr},
                            pointers(wide), n, 1.0F, hyper);
    }
    double error = 0.0;
    double size = 0.0;
    for (std::size_t i = 0; i < n; ++i) {
        double const difference = static_cast<double>(parameter[i]) - static_cast<double>(exact[i]);
        error += difference * difference;
        size += static_cast<double>(exact[i]) * static_cast<double>(exact[i]);
    }
    return std::sqrt(error / size);
}

TEST_CASE(
    "AdamW with 16-bit states stays near AdamW with float states, nearest with scaled float16",
    "[host][kernel]") {
    double const scaled = distance_from_float<ScaledArray>();
    double const bfloat = distance_from_float<PlainArray<bfloat16>>();
    CAPTURE(scaled, bfloat);
    CHECK(scaled > 0.0);
    CHECK(scaled < 2e-3);
    CHECK(bfloat > 2e-3);
    CHECK(bfloat < 0.1);
    CHECK(distance_from_float<PlainArray<float16>>() > 10.0);
    CHECK(distance_from_float<PlainArray<float>>() == 0.0);
}

} // namespace

} // namespace zero::test::state_types_kernel_test
