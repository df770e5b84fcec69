#include "scaler_table.hpp"

#include "support/catch.hpp"

namespace zero::test::growth_delay_test {

using State = DynamicLossScaler::State;

TEST_CASE(
    "A growth delay postpones only the first growth after the start and after each overflow") {
    DynamicLossScalerOptions const options{
        .initial_scale = 8, .growth_interval = 2, .growth_delay = 2, .hysteresis = 1};
    auto const rows = test::play(options, "......x....");
    std::vector<float> scales;
    for (auto const& row : rows) {
        scales.push_back(row.scale);
    }
    CHECK(scales == std::vector<float>{8, 8, 8, 16, 16, 32, 16, 16, 16, 16, 32});
}

TEST_CASE("An overflow during the delay restarts it") {
    DynamicLossScalerOptions const options{
        .initial_scale = 8, .growth_interval = 1, .growth_delay = 2, .hysteresis = 9};
    CHECK(test::last_scale(options, ".x..") == 8.0F);
    CHECK(test::last_scale(options, ".x...") == 16.0F);
}

TEST_CASE("The remaining delay is part of the state") {
    DynamicLossScalerOptions const options{
        .initial_scale = 8, .growth_interval = 1, .growth_delay = 1};
    CHECK(DynamicLossScaler::initial(options).delay_left == 1);
    CHECK(DynamicLossScaler::next(State{8, 0, 2, 1}, false, options).delay_left == 0);
    CHECK(DynamicLossScaler::next(State{8, 0, 2, 1}, false, options).scale == 8.0F);
    CHECK(DynamicLossScaler::next(State{8, 0, 2, 0}, false, options).scale == 16.0F);
    CHECK(DynamicLossScaler::next(State{8, 0, 2, 0}, true, options).delay_left == 1);
}

TEST_CASE("A count of clean steps from a longer interval grows at once instead of never") {
    DynamicLossScalerOptions const options{.initial_scale = 8, .growth_interval = 10};
    State const state = DynamicLossScaler::next(State{8, 500, 2, 0}, false, options);
    CHECK(state.scale == 16.0F);
    CHECK(state.clean_steps == 0);
}

TEST_CASE("Holding at the maximum keeps the scale, and clamping takes the maximum") {
    DynamicLossScalerOptions options{.initial_scale = 64,
                                     .growth_interval = 1,
                                     .hysteresis = 2,
                                     .maximum = 100,
                                     .at_maximum = AtMaximumScale::hold};
    CHECK(test::play(options, ".x.")
          == std::vector<test::ScalerRow>{{64, 0, 2}, {64, 0, 1}, {64, 0, 2}});
    options.at_maximum = AtMaximumScale::clamp;
    CHECK(test::last_scale(options, ".") == 100.0F);
    options.maximum = 128;
    options.at_maximum = AtMaximumScale::hold;
    CHECK(test::last_scale(options, "..")
          == 128.0F); // growth to exactly the maximum is not growth beyond it
}

} // namespace zero::test::growth_delay_test
