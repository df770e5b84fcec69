#include "policy/loss_scaler_conformance.hpp"

#include "support/shipped_policies.hpp"

namespace zero::test {

template <>
struct LossScalerFixture<NoLossScaler> {
    static std::vector<NoLossScalerOptions> accepted() { return {{}}; }
    static std::vector<NoLossScalerOptions> refused() { return {}; }
};

template <>
struct LossScalerFixture<StaticLossScaler> {
    static std::vector<StaticLossScalerOptions> accepted() {
        return {{}, {.scale = 0.5F}, {.scale = 3.0F}};
    }
    static std::vector<StaticLossScalerOptions> refused() {
        return {{.scale = 0.0F},
                {.scale = -1.0F},
                {.scale = 0x1p-127F},
                {.scale = std::numeric_limits<float>::infinity()},
                {.scale = std::nanf("")}};
    }
};

template <>
struct LossScalerFixture<DynamicLossScaler> {
    using Options = DynamicLossScalerOptions;
    static std::vector<Options> accepted() {
        return {
            {},
            {.initial_scale = 64, .growth_interval = 3, .growth_delay = 2, .hysteresis = 3},
            {.initial_scale = 1000,
             .growth_factor = 1.5,
             .backoff_factor = 0.3,
             .growth_interval = 2,
             .consecutive_hysteresis = true,
             .minimum = 10,
             .maximum = 5000},
            {.initial_scale = 4,
             .growth_interval = 1,
             .hysteresis = 1,
             .maximum = 100,
             .at_maximum = AtMaximumScale::hold},
            loss_scaler_presets::deepspeed(true), // only this one throws, at a minimum out of reach
            loss_scaler_presets::pytorch(),
            loss_scaler_presets::apex()};
    }
    static std::vector<Options> refused() {
        return {{.initial_scale = 0.5F}, {.growth_factor = 1.0},
                {.backoff_factor = 1.0}, {.growth_interval = 0},
                {.hysteresis = 0},       {.at_minimum = AtMinimumScale::call_back}};
    }
};

} // namespace zero::test

namespace zero::test::loss_scaler_conformance_test {

TEMPLATE_LIST_TEST_CASE(
    "A loss scaler accepts valid options, rejects each mistake, and hashes its options",
    "[policy][scaler]", ShippedLossScalers) {
    check_scaler_options<TestType>();
}

TEMPLATE_LIST_TEST_CASE("The scale and its inverse stay finite, overflows do not grow it, an "
                        "exhausted state cannot shrink it, and a run resumes from its state",
                        "[policy][scaler]", ShippedLossScalers) {
    check_scaler_rule<TestType>();
}

TEST_CASE("The suite finds rules that grow on an overflow, vanish, are exhausted early, or keep "
          "data outside their state") {
    struct Grows : DynamicLossScaler {
        static State next(State state, bool overflow, Options const& options) noexcept {
            return DynamicLossScaler::next(state, !overflow, options);
        }
    };
    struct Vanishes : DynamicLossScaler {
        static State next(State state, bool overflow, Options const&) noexcept {
            return {overflow ? state.scale * 0.5F : state.scale};
        }
        static bool is_exhausted(State, Options const&) noexcept { return false; }
    };
    struct GivesUp : DynamicLossScaler {
        static bool is_exhausted(State state, Options const& options) noexcept {
            return state.scale <= options.minimum * 16.0F;
        }
    };
    struct Remembers : DynamicLossScaler {
        static State next(State state, bool overflow, Options const& options) noexcept {
            static thread_local int overflows = 0;
            overflows += overflow ? 1 : 0;
            return overflow && overflows % 2 == 0
                       ? state
                       : DynamicLossScaler::next(state, overflow, options);
        }
    };
    DynamicLossScalerOptions const options{.growth_interval = 5, .hysteresis = 1};
    CHECK(problem_of_rule<DynamicLossScaler>(options) == "");
    CHECK(problem_of_rule<Grows>({.growth_interval = 1}) == "an overflow grows the scale");
    CHECK(problem_of_rule<Vanishes>(options) == "the scale or its inverse is not a number");
    CHECK(problem_of_rule<GivesUp>(options)
          == "it is exhausted, but an overflow shrinks the scale");
    CHECK(problem_of_resuming<Remembers>(options).find("is another one") != std::string::npos);
}

TEMPLATE_LIST_TEST_CASE(
    "An engine steps with the scale of the rule, to the same bits in every stage",
    "[policy][scaler]", ShippedLossScalers) {
    check_scaler_in_engine<TestType>();
}

} // namespace zero::test::loss_scaler_conformance_test
