#include "scaler_table.hpp"

#include "support/catch.hpp"

#include <zero/policy/loss_scaler_presets.hpp>

#include <cstddef>
#include <limits>

// Scale and hysteresis of every preset step by step, derived by hand from the sources of the other
// systems.

namespace zero::test::loss_scaler_presets_test {

namespace presets = zero::loss_scaler_presets;

namespace {

using Rows = std::vector<test::ScalerRow>;

/// A preset with a short interval, so that growth shows in a short run.
DynamicLossScalerOptions shortened(DynamicLossScalerOptions options, float initial_scale,
                                   std::uint32_t interval) {
    options.initial_scale = initial_scale;
    options.growth_interval = interval;
    return options;
}

std::string clean(std::size_t steps) {
    return std::string(steps, '.');
}

} // namespace

TEST_CASE("Each preset is valid and has the defaults of its system") {
    for (auto const& options : {presets::deepspeed(), presets::deepspeed(true), presets::pytorch(),
                                presets::megatron(), presets::apex(), presets::apex(1)}) {
        CHECK_NOTHROW(DynamicLossScaler::validate(options));
        CHECK(options.growth_factor == 2.0);
        CHECK(options.backoff_factor == 0.5);
    }
    CHECK(presets::deepspeed().initial_scale == 65536.0F);
    CHECK(presets::pytorch().initial_scale == 65536.0F);
    CHECK(presets::apex().initial_scale == 65536.0F);
    CHECK(presets::megatron().initial_scale == 4294967296.0F);
    CHECK(presets::deepspeed().hysteresis == 2);
    CHECK(presets::megatron().hysteresis == 2);
    CHECK(presets::pytorch().hysteresis == 1);
    CHECK(presets::apex(3).hysteresis == 3);
    CHECK(presets::deepspeed().at_minimum == AtMinimumScale::throw_error);
    CHECK(presets::megatron().at_minimum == AtMinimumScale::hold);
}

TEST_CASE("DeepSpeed grows on clean step 1001 and then every 1000, the others on 1000 and 2000") {
    CHECK(test::last_scale(presets::deepspeed(), clean(1000)) == 65536.0F);
    CHECK(test::last_scale(presets::deepspeed(), clean(1001)) == 131072.0F);
    CHECK(test::last_scale(presets::deepspeed(), clean(2000)) == 131072.0F);
    CHECK(test::last_scale(presets::deepspeed(), clean(2001)) == 262144.0F);
    CHECK(test::last_scale(presets::deepspeed(), clean(500) + 'x' + clean(1000)) == 65536.0F);
    CHECK(test::last_scale(presets::deepspeed(), clean(500) + 'x' + clean(1001)) == 131072.0F);
    CHECK(test::last_scale(presets::megatron(), clean(999)) == 0x1p32F);
    CHECK(test::last_scale(presets::megatron(), clean(1000)) == 0x1p33F);
    for (auto const& options : {presets::pytorch(), presets::apex()}) {
        CHECK(test::last_scale(options, clean(1999)) == 65536.0F);
        CHECK(test::last_scale(options, clean(2000)) == 131072.0F);
    }
}

TEST_CASE("DeepSpeed, window 2: growth takes one step more after an overflow and restores the "
          "hysteresis") {
    CHECK(test::play(shortened(presets::deepspeed(), 64, 2), "...x.xx.....x")
          == Rows{{64, 0, 2},
                  {64, 1, 2},
                  {128, 0, 2},
                  {128, 0, 1},
                  {128, 0, 1},
                  {64, 0, 1},
                  {32, 0, 1}, // used up: each overflow halves
                  {32, 0, 1},
                  {32, 1, 1},
                  {64, 0, 2},
                  {64, 1, 2},
                  {128, 0, 2},
                  {128, 0, 1}});
    CHECK(test::play(shortened(presets::deepspeed(true), 64, 2), "x.xx.x")
          == Rows{{64, 0, 1}, {64, 0, 2}, {64, 0, 1}, {32, 0, 1}, {32, 0, 2}, {32, 0, 1}});
}

TEST_CASE("DeepSpeed is exhausted at exactly the minimum and only when the hysteresis is used up") {
    auto const options = shortened(presets::deepspeed(), 2, 2);
    auto state = DynamicLossScaler::initial(options);
    std::string exhausted;
    for (char const step : std::string("xxx...x")) { // 2 (1 left), 1, at the minimum, clean, clean,
                                                     // grows to 2 (2 left), 2 (1 left)
        exhausted += step == 'x' && DynamicLossScaler::is_exhausted(state, options) ? '!' : '-';
        state = DynamicLossScaler::next(state, step == 'x', options);
    }
    CHECK(exhausted == "--!----");
    auto fresh = DynamicLossScaler::initial(shortened(presets::deepspeed(), 1, 2));
    CHECK_FALSE(DynamicLossScaler::is_exhausted(
        fresh, options)); // at the minimum, but with hysteresis left
}

TEST_CASE(
    "PyTorch, interval 3: each overflow halves the scale, and consecutive clean steps double it") {
    CHECK(test::play(shortened(presets::pytorch(), 64, 3), "..x...xx")
          == Rows{{64, 1, 1},
                  {64, 2, 1},
                  {32, 0, 1},
                  {32, 1, 1},
                  {32, 2, 1},
                  {64, 0, 1},
                  {32, 0, 1},
                  {16, 0, 1}});
}

TEST_CASE("PyTorch goes below 1, here down to 2^-126, and does not grow past the largest float") {
    CHECK(test::last_scale(presets::pytorch(), std::string(17, 'x')) == 0.5F);
    CHECK(test::last_scale(presets::pytorch(), std::string(142, 'x')) == 0x1p-126F);
    CHECK(test::last_scale(presets::pytorch(), std::string(200, 'x')) == 0x1p-126F);
    CHECK(1.0F / 0x1p-126F == 0x1p126F);
    auto const top = shortened(presets::pytorch(), 0x1p126F, 2);
    CHECK(test::play(top, ".....x")
          == Rows{{0x1p126F, 1, 1},
                  {0x1p127F, 0, 1},
                  {0x1p127F, 1, 1},
                  {0x1p127F, 0, 1},
                  {0x1p127F, 1, 1},
                  {0x1p126F, 0, 1}});
    auto clamped = top;
    clamped.at_maximum = AtMaximumScale::clamp; // unlike the preset
    CHECK(test::last_scale(clamped, "....") == std::numeric_limits<float>::max());
}

TEST_CASE("Factors that are no powers of two give PyTorch's scales: a float times a double factor, "
          "rounded to float") {
    auto options = shortened(presets::pytorch(), 65536.0F, 1);
    options.growth_factor = 1.1;
    options.backoff_factor = 0.7;
    // Computed with exact fractions: round_to_float(scale * double(factor)), step by step.
    CHECK(test::last_scale(options, ".") == 0x1.19999a0000000p+16F);
    CHECK(test::last_scale(options, "....................") == 0x1.ae8f5e0000000p+18F);
    CHECK(test::last_scale(options, "xxxxxxxxxx") == 0x1.ceceb60000000p+10F);
    CHECK(test::last_scale(options, "..x..x..x..x..x..x..x") == 0x1.403f060000000p+14F);
    // With factors held as floats the last bits differ.
    options.growth_factor = static_cast<double>(1.1F);
    options.backoff_factor = static_cast<double>(0.7F);
    CHECK(test::last_scale(options, "....................") != 0x1.ae8f5e0000000p+18F);
    CHECK(test::last_scale(options, "xxxxxxxxxx") != 0x1.ceceb60000000p+10F);
}

TEST_CASE("Megatron, window 3: only growth restores the hysteresis, and the scale holds at 1") {
    CHECK(test::play(shortened(presets::megatron(), 4, 3), "x..x.x...xxxxx")
          == Rows{{4, 0, 1},
                  {4, 1, 1},
                  {4, 2, 1},
                  {2, 0, 1},
                  {2, 1, 1},
                  {1, 0, 1},
                  {1, 1, 1},
                  {1, 2, 1},
                  {2, 0, 2},
                  {2, 0, 1},
                  {1, 0, 1},
                  {1, 0, 1},
                  {1, 0, 1},
                  {1, 0, 1}});
}

TEST_CASE("Apex, hysteresis 2 and interval 3: an overflow restarts the count, and every clean step "
          "restores the hysteresis") {
    CHECK(test::play(shortened(presets::apex(), 64, 3), "..x.xx...x")
          == Rows{{64, 1, 2},
                  {64, 2, 2},
                  {64, 0, 1},
                  {64, 1, 2},
                  {64, 0, 1},
                  {32, 0, 1},
                  {32, 1, 2},
                  {32, 2, 2},
                  {64, 0, 2},
                  {64, 0, 1}});
    CHECK(test::play(shortened(presets::apex(1), 64, 3), "x.x")
          == Rows{{32, 0, 1}, {32, 1, 1}, {16, 0, 1}});
}

} // namespace zero::test::loss_scaler_presets_test
