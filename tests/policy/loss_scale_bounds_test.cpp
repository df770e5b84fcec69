#include "scaler_table.hpp"

#include "support/catch.hpp"

#include <limits>

namespace zero::test::loss_scale_bounds_test {

using Rows = std::vector<test::ScalerRow>;

TEST_CASE("The scale never exceeds its maximum, 2^24 by default") {
    DynamicLossScalerOptions options;
    options.growth_interval = 1;
    CHECK(test::last_scale(options, std::string(7, '.')) == 8388608.0F);
    CHECK(test::last_scale(options, std::string(8, '.')) == 16777216.0F);
    CHECK(test::last_scale(options, std::string(100, '.')) == 16777216.0F);
}

TEST_CASE("Growth at the maximum keeps the scale and restores the hysteresis") {
    DynamicLossScalerOptions const options{
        .initial_scale = 64, .growth_interval = 2, .hysteresis = 2, .maximum = 64};
    CHECK(test::play(options, "..x..x")
          == Rows{{64, 1, 2}, {64, 0, 2}, {64, 0, 1}, {64, 1, 1}, {64, 0, 2}, {64, 0, 1}});
}

TEST_CASE("Growth beyond the maximum is clamped to it") {
    DynamicLossScalerOptions const options{
        .initial_scale = 64, .growth_interval = 1, .hysteresis = 1, .maximum = 100};
    CHECK(test::play(options, "..x") == Rows{{100, 0, 1}, {100, 0, 1}, {50, 0, 1}});
}

TEST_CASE("Growth that overflows a float gives the maximum and never infinity") {
    DynamicLossScalerOptions const options{.initial_scale = 3e38F,
                                           .growth_factor = 3e38,
                                           .growth_interval = 1,
                                           .hysteresis = 1,
                                           .maximum = std::numeric_limits<float>::max()};
    CHECK(test::last_scale(options, ".") == std::numeric_limits<float>::max());
}

TEST_CASE("The scale holds at its minimum, 1 by default") {
    DynamicLossScalerOptions const options{
        .initial_scale = 4, .growth_interval = 2, .hysteresis = 1};
    CHECK(test::play(options, "xxxx..")
          == Rows{{2, 0, 1}, {1, 0, 1}, {1, 0, 1}, {1, 0, 1}, {1, 1, 1}, {2, 0, 1}});
}

TEST_CASE("A reduction below the minimum is clamped to it") {
    DynamicLossScalerOptions const options{
        .initial_scale = 10, .growth_interval = 2, .hysteresis = 1, .minimum = 3};
    CHECK(test::play(options, "xxx") == Rows{{5, 0, 1}, {3, 0, 1}, {3, 0, 1}});
}

TEST_CASE("The scaler is exhausted when an overflow would leave the scale at its minimum") {
    DynamicLossScalerOptions const options{
        .initial_scale = 4, .growth_interval = 2, .hysteresis = 2, .minimum = 2};
    using State = DynamicLossScaler::State;
    CHECK_FALSE(DynamicLossScaler::is_exhausted(State{4, 0, 2}, options));
    CHECK_FALSE(DynamicLossScaler::is_exhausted(State{4, 0, 1}, options)); // would become 2
    CHECK_FALSE(DynamicLossScaler::is_exhausted(State{3, 0, 1}, options)); // would be clamped to 2
    // The overflow first uses up the hysteresis.
    CHECK_FALSE(DynamicLossScaler::is_exhausted(State{2, 0, 2}, options));
    CHECK(DynamicLossScaler::is_exhausted(State{2, 0, 1}, options));
    CHECK(DynamicLossScaler::is_exhausted(State{2, 1, 1}, options));
}

TEST_CASE("For each state of a run, is_exhausted tells whether an overflow keeps the scale") {
    DynamicLossScalerOptions const options{
        .initial_scale = 8, .growth_interval = 3, .hysteresis = 2};
    auto state = DynamicLossScaler::initial(options);
    std::string exhausted;
    for (char const step : std::string("xxxxx..x.x...x")) {
        state = DynamicLossScaler::next(state, step == 'x', options);
        exhausted += DynamicLossScaler::is_exhausted(state, options) ? '!' : '-';
        auto const after = DynamicLossScaler::next(state, true, options);
        bool const is_unchanged =
            after.scale == state.scale && after.hysteresis_left == state.hysteresis_left;
        CHECK(DynamicLossScaler::is_exhausted(state, options) == is_unchanged);
    }
    // 8 (1 left), 4, 2, 1, 1, then clean, overflow, clean, overflow, three clean steps grow to 2
    // with 2 left, overflow.
    CHECK(exhausted == "---!!!!!!!!!--");
}

} // namespace zero::test::loss_scale_bounds_test
