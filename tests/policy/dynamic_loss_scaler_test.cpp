#include "scaler_table.hpp"

#include "support/catch.hpp"

namespace zero::test::dynamic_loss_scaler_test {

using Rows = std::vector<test::ScalerRow>;

TEST_CASE("The dynamic loss scaler starts at 2^16 and grows by 2 after exactly 1000 clean steps") {
    DynamicLossScalerOptions const options;
    auto const start = DynamicLossScaler::initial(options);
    CHECK(start.scale == 65536.0F);
    CHECK(start.clean_steps == 0);
    CHECK(start.hysteresis_left == 2);
    CHECK(test::last_scale(options, std::string(999, '.')) == 65536.0F);
    CHECK(test::last_scale(options, std::string(1000, '.')) == 131072.0F);
    CHECK(test::last_scale(options, std::string(1999, '.')) == 131072.0F);
    CHECK(test::last_scale(options, std::string(2000, '.')) == 262144.0F);
}

TEST_CASE("Clean steps alone grow the scale once an interval") {
    DynamicLossScalerOptions const options{
        .initial_scale = 8, .growth_interval = 3, .hysteresis = 1};
    CHECK(
        test::play(options, ".......")
        == Rows{{8, 1, 1}, {8, 2, 1}, {16, 0, 1}, {16, 1, 1}, {16, 2, 1}, {32, 0, 1}, {32, 1, 1}});
}

TEST_CASE("An interval of one grows the scale on every clean step") {
    DynamicLossScalerOptions const options{
        .initial_scale = 8, .growth_interval = 1, .hysteresis = 1};
    CHECK(test::play(options, "..x.") == Rows{{16, 0, 1}, {32, 0, 1}, {16, 0, 1}, {32, 0, 1}});
}

TEST_CASE("With a hysteresis of 1 every overflow halves the scale, and only consecutive clean "
          "steps grow it") {
    DynamicLossScalerOptions const options{
        .initial_scale = 64, .growth_interval = 3, .hysteresis = 1};
    CHECK(test::play(options, "x..x...xx")
          == Rows{{32, 0, 1},
                  {32, 1, 1},
                  {32, 2, 1},
                  {16, 0, 1},
                  {16, 1, 1},
                  {16, 2, 1},
                  {32, 0, 1},
                  {16, 0, 1},
                  {8, 0, 1}});
}

TEST_CASE("With a hysteresis of 2 the first overflow is free, and then each halves the scale until "
          "the next growth") {
    DynamicLossScalerOptions const options{
        .initial_scale = 64, .growth_interval = 3, .hysteresis = 2};
    CHECK(test::play(options, "x.x.x...xx")
          == Rows{{64, 0, 1},
                  {64, 1, 1},
                  {32, 0, 1},
                  {32, 1, 1},
                  {16, 0, 1}, // used up: clean steps do not restore it
                  {16, 1, 1},
                  {16, 2, 1},
                  {32, 0, 2}, // growth does
                  {32, 0, 1},
                  {16, 0, 1}});
}

TEST_CASE("With a hysteresis of 3 two overflows are free") {
    DynamicLossScalerOptions const options{
        .initial_scale = 64, .growth_interval = 100, .hysteresis = 3};
    CHECK(test::play(options, "xxxx") == Rows{{64, 0, 2}, {64, 0, 1}, {32, 0, 1}, {16, 0, 1}});
}

TEST_CASE("Every clean step restores a consecutive hysteresis, so only consecutive overflows "
          "shrink the scale") {
    DynamicLossScalerOptions const options{
        .initial_scale = 64, .growth_interval = 4, .hysteresis = 2, .consecutive_hysteresis = true};
    CHECK(test::play(options, "x.x.xx.x....")
          == Rows{{64, 0, 1},
                  {64, 1, 2},
                  {64, 0, 1},
                  {64, 1, 2},
                  {64, 0, 1},
                  {32, 0, 1},
                  {32, 1, 2},
                  {32, 0, 1},
                  {32, 1, 2},
                  {32, 2, 2},
                  {32, 3, 2},
                  {64, 0, 2}});
}

TEST_CASE(
    "Factors that are not powers of two are applied exactly, and the product is rounded to float") {
    DynamicLossScalerOptions const options{.initial_scale = 1000,
                                           .growth_factor = 1.5F,
                                           .backoff_factor = 0.3F,
                                           .growth_interval = 2,
                                           .hysteresis = 1};
    // 1000 * 1.5 = 1500; * 0.3F; * 1.5.
    auto const rows = test::play(options, "..x..");
    CHECK(rows[1].scale == 1500.0F);
    CHECK(rows[2].scale == 1500.0F * 0.3F);
    CHECK(rows[2].scale == test::Approx(450.0));
    CHECK(rows[4].scale == 1500.0F * 0.3F * 1.5F);
}

} // namespace zero::test::dynamic_loss_scaler_test
