#include "support/catch.hpp"

#include <zero/core/error.hpp>
#include <zero/policy/dynamic_loss_scaler.hpp>
#include <zero/policy/no_loss_scaler.hpp>
#include <zero/policy/static_loss_scaler.hpp>

#include <limits>

namespace zero::test::loss_scaler_validate_test {

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

template <class Scaler>
std::string message(typename Scaler::Options const& options) {
    try {
        Scaler::validate(options);
    } catch (InvalidArgument const& error) {
        return error.what();
    }
    return "nothing was thrown";
}

/// The message for the default options with one member changed.
template <class T>
std::string with(T DynamicLossScalerOptions::*member, T value) {
    DynamicLossScalerOptions options;
    options.*member = value;
    return message<DynamicLossScaler>(options);
}

using Options = DynamicLossScalerOptions;

} // namespace

TEST_CASE("A static scale that is not positive and finite is rejected") {
    CHECK(message<StaticLossScaler>({.scale = 0.0F})
          == "zero: the loss scaler's scale is 0; it must be positive and finite.");
    CHECK(message<StaticLossScaler>({.scale = -2.0F})
          == "zero: the loss scaler's scale is -2; it must be positive and finite.");
    CHECK(message<StaticLossScaler>({.scale = infinity})
          == "zero: the loss scaler's scale is inf; it must be positive and finite.");
    CHECK(message<StaticLossScaler>({.scale = not_a_number})
          == "zero: the loss scaler's scale is nan; it must be positive and finite.");
    CHECK(message<StaticLossScaler>({.scale = 0.5F}) == "nothing was thrown");
}

TEST_CASE("Initial scale, minimum and maximum of a dynamic scaler must be positive and finite") {
    std::string const end = "; it must be positive and finite.";
    CHECK(with(&Options::initial_scale, 0.0F)
          == "zero: the loss scaler's initial_scale is 0" + end);
    CHECK(with(&Options::initial_scale, not_a_number)
          == "zero: the loss scaler's initial_scale is nan" + end);
    CHECK(with(&Options::minimum, 0.0F) == "zero: the loss scaler's minimum is 0" + end);
    CHECK(with(&Options::minimum, -1.0F) == "zero: the loss scaler's minimum is -1" + end);
    CHECK(with(&Options::maximum, infinity) == "zero: the loss scaler's maximum is inf" + end);
    CHECK(with(&Options::maximum, not_a_number) == "zero: the loss scaler's maximum is nan" + end);
}

TEST_CASE("The initial scale must lie between minimum and maximum") {
    auto const expected = [](std::string const& scale, std::string const& minimum,
                             std::string const& maximum) {
        return "zero: the dynamic loss scaler's initial_scale " + scale
               + " lies outside minimum..maximum, " + minimum + ".." + maximum
               + "; give another one, or wider bounds.";
    };
    CHECK(with(&Options::initial_scale, 0.5F) == expected("0.5", "1", "16777216"));
    CHECK(with(&Options::initial_scale, 33554432.0F) == expected("33554432", "1", "16777216"));
    CHECK(with(&Options::minimum, 65537.0F) == expected("65536", "65537", "16777216"));
    CHECK(with(&Options::maximum, 65535.0F) == expected("65536", "1", "65535"));
    CHECK(with(&Options::minimum, 65536.0F) == "nothing was thrown");
    CHECK(with(&Options::maximum, 65536.0F) == "nothing was thrown");
    CHECK(with(&Options::initial_scale, 1.0F) == "nothing was thrown");
}

TEST_CASE("The growth factor must be above 1 and finite") {
    std::string const expected = "zero: the dynamic loss scaler's growth_factor must be above 1.";
    for (double const factor :
         {1.0, 0.5, 0.0, -2.0, static_cast<double>(not_a_number), static_cast<double>(infinity)}) {
        CHECK(with(&Options::growth_factor, factor) == expected);
    }
    CHECK(with(&Options::growth_factor, 1.0001) == "nothing was thrown");
}

TEST_CASE("The backoff factor must lie between 0 and 1") {
    std::string const expected =
        "zero: the dynamic loss scaler's backoff_factor must lie between 0 and 1.";
    for (double const factor :
         {0.0, 1.0, 2.0, -0.5, static_cast<double>(not_a_number), static_cast<double>(infinity)}) {
        CHECK(with(&Options::backoff_factor, factor) == expected);
    }
    CHECK(with(&Options::backoff_factor, 0.75) == "nothing was thrown");
}

TEST_CASE("Growth interval and hysteresis must be at least 1") {
    CHECK(with(&Options::growth_interval, 0U)
          == "zero: the dynamic loss scaler's growth_interval must be at least 1.");
    CHECK(with(&Options::hysteresis, 0U)
          == "zero: the dynamic loss scaler's hysteresis must be at least 1.");
    CHECK(with(&Options::growth_interval, 1U) == "nothing was thrown");
    CHECK(with(&Options::hysteresis, 1U) == "nothing was thrown");
}

TEST_CASE("A callback at the minimum needs a function") {
    Options options;
    options.at_minimum = AtMinimumScale::call_back;
    CHECK(message<DynamicLossScaler>(options)
          == "zero: the dynamic loss scaler's at_minimum is call_back, but on_minimum is null.");
    options.on_minimum = [](void*) {};
    CHECK(message<DynamicLossScaler>(options) == "nothing was thrown");
    CHECK(with(&Options::at_minimum, AtMinimumScale::throw_error) == "nothing was thrown");
}

TEST_CASE("A scale whose inverse would be infinite is rejected") {
    CHECK(message<StaticLossScaler>({.scale = 0x1p-126F}) == "nothing was thrown");
    CHECK(message<StaticLossScaler>({.scale = 0x1p-127F})
          == "zero: the loss scaler's scale is below 2^-126, where its inverse would overflow; "
             "give a larger one.");
    CHECK(with(&Options::minimum, 0x1p-126F) == "nothing was thrown");
    CHECK(with(&Options::minimum, 0x1p-149F)
          == "zero: the loss scaler's minimum is below 2^-126, where its inverse would overflow; "
             "give a larger one.");
}

TEST_CASE("A callback that would never be called is rejected") {
    std::string const expected = "zero: the dynamic loss scaler's on_minimum and context would be "
                                 "ignored; set at_minimum to call_back, or leave them out.";
    int context = 0;
    Options options;
    options.context = &context;
    CHECK(message<DynamicLossScaler>(options) == expected);
    options.on_minimum = [](void*) {};
    CHECK(message<DynamicLossScaler>(options) == expected);
    options.at_minimum = AtMinimumScale::throw_error;
    CHECK(message<DynamicLossScaler>(options) == expected);
    options.at_minimum = AtMinimumScale::call_back;
    CHECK(message<DynamicLossScaler>(options) == "nothing was thrown");
}

TEST_CASE("A state that the caller sets must lie inside the bounds") {
    Options const options{.minimum = 2, .maximum = 65536};
    CHECK_NOTHROW(DynamicLossScaler::validate_state({2}, options));
    CHECK_NOTHROW(DynamicLossScaler::validate_state({65536}, options));
    CHECK_THROWS_WITH(DynamicLossScaler::validate_state({1}, options),
                      "zero: the loss scale 1 lies outside minimum..maximum of the dynamic "
                      "loss scaler, 2..65536; give another one, or wider bounds.");
    CHECK_THROWS_AS(DynamicLossScaler::validate_state({65537}, options), InvalidArgument);
    CHECK_NOTHROW(NoLossScaler::validate_state({}, {}));
    CHECK_THROWS_WITH(
        NoLossScaler::validate_state({2}, {}),
        zero::test::contains_text("without a loss scaler, whose scale is 1; add StaticLossScaler"));
}

} // namespace zero::test::loss_scaler_validate_test
