#include "support/catch.hpp"

#include <zero/policy/dynamic_loss_scaler.hpp>
#include <zero/policy/no_loss_scaler.hpp>
#include <zero/policy/static_loss_scaler.hpp>

namespace zero::test::fixed_loss_scaler_test {

TEST_CASE("Without a loss scaler the scale stays 1 and the engine handles overflows") {
    NoLossScalerOptions const options;
    NoLossScaler::validate(options);
    auto state = NoLossScaler::initial(options);
    for (bool const overflow : {false, true, true, false}) {
        CHECK(state.scale == 1.0F);
        CHECK_FALSE(NoLossScaler::is_exhausted(state, options));
        state = NoLossScaler::next(state, overflow, options);
    }
    STATIC_REQUIRE_FALSE(NoLossScaler::skips_overflow);
}

TEST_CASE("A static loss scaler keeps its scale and skips overflows") {
    StaticLossScalerOptions const options{.scale = 1024.0F};
    auto state = StaticLossScaler::initial(options);
    for (bool const overflow : {false, true, true, false}) {
        CHECK(state.scale == 1024.0F);
        CHECK_FALSE(StaticLossScaler::is_exhausted(state, options));
        state = StaticLossScaler::next(state, overflow, options);
    }
    CHECK(StaticLossScaler::initial({}).scale == 65536.0F);
    STATIC_REQUIRE(StaticLossScaler::skips_overflow);
    STATIC_REQUIRE(DynamicLossScaler::skips_overflow);
}

} // namespace zero::test::fixed_loss_scaler_test
