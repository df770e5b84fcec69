#include "other_rules.hpp"

#include "support/catch.hpp"

#include <zero/policy/loss_scaler_presets.hpp>

#include <algorithm>
#include <random>

// Compares each preset with the rule of the system that it reproduces, over random overflows.

namespace zero::test::loss_scaler_rules_test {

namespace presets = zero::loss_scaler_presets;

namespace {

constexpr int sequences = 4000;
constexpr int steps = 300;

/// Single overflows and bursts, from rare to nearly always.
class Weather {
public:
    explicit Weather(std::uint32_t seed)
        : _random(seed), _chance(std::uniform_int_distribution<std::uint32_t>(0, 60)(_random)) {}
    bool overflows() {
        _is_burst = _random() % 40 == 0 ? !_is_burst : _is_burst;
        return _random() % 100 < (_is_burst ? 80 : _chance / 4);
    }

private:
    std::mt19937 _random;
    std::uint32_t _chance;
    bool _is_burst = false;
};

double scale_of(DeepSpeedRule const& rule) {
    return rule.scale;
}
double scale_of(PyTorchRule const& rule) {
    return static_cast<double>(rule.scale);
}
double scale_of(ApexRule const& rule) {
    return static_cast<double>(rule.inner.scale);
}
double scale_of(MegatronRule const& rule) {
    return static_cast<double>(rule.scale);
}

struct Tally {
    int scales_differ = 0;
    int exhaustion_differs = 0;
    int growths = 0;
    int reductions = 0;
    int exhaustions = 0;
    int ends = 0; ///< sequences in which the other system's rule left the range of scales
};

/// Runs the same random steps with the other system's rule and with ours. `make_rule` and
/// `make_options` get the number of the sequence, which selects shorter intervals.
template <class MakeRule, class MakeOptions>
Tally compare(MakeRule const& make_rule, MakeOptions const& make_options) {
    Tally tally;
    for (int sequence = 0; sequence < sequences; ++sequence) {
        auto rule = make_rule(sequence);
        DynamicLossScalerOptions const options = make_options(sequence);
        DynamicLossScaler::validate(options);
        auto state = DynamicLossScaler::initial(options);
        Weather weather(static_cast<std::uint32_t>(sequence));
        for (int step = 0; step < steps; ++step) {
            bool const overflow = weather.overflows();
            double const before = scale_of(rule);
            rule.step(overflow);
            bool const is_exhausted = overflow && DynamicLossScaler::is_exhausted(state, options);
            state = DynamicLossScaler::next(state, overflow, options);
            if (scale_of(rule) < 0x1p-126 || scale_of(rule) > 0x1p127) {
                ++tally.ends;
                break; // the other system's rule continues to zero or infinity
            }
            tally.scales_differ += static_cast<double>(state.scale) != scale_of(rule) ? 1 : 0;
            tally.growths += scale_of(rule) > before ? 1 : 0;
            tally.reductions += scale_of(rule) < before ? 1 : 0;
            if constexpr (requires { rule.throws; }) {
                tally.exhaustion_differs += is_exhausted != rule.throws ? 1 : 0;
                tally.exhaustions += rule.throws ? 1 : 0;
            }
        }
    }
    return tally;
}

std::uint32_t interval_of(int sequence) {
    return 1U + static_cast<std::uint32_t>(sequence) % 9U;
}
std::uint32_t hysteresis_of(int sequence) {
    return 1U + static_cast<std::uint32_t>(sequence) / 9U % 4U;
}

template <class Make>
auto shortened(Make const& make) {
    return [make](int sequence) {
        DynamicLossScalerOptions options = make(sequence);
        options.growth_interval = interval_of(sequence);
        return options;
    };
}

/// Checks that the rules agree at every step, and that many steps change the scale.
void check_equal(Tally const& tally) {
    CHECK(tally.scales_differ == 0);
    CHECK(tally.exhaustion_differs == 0);
    CHECK(tally.growths > 10'000);
    CHECK(tally.reductions > 10'000);
    CHECK(tally.ends < sequences / 4);
}

auto const deepspeed_rule = [](int sequence) {
    int const hysteresis = static_cast<int>(hysteresis_of(sequence));
    return DeepSpeedRule{.window = interval_of(sequence),
                         .full_hysteresis = hysteresis,
                         .is_consecutive = sequence % 2 == 1};
};
auto const deepspeed_options = shortened([](int sequence) {
    DynamicLossScalerOptions options = presets::deepspeed(sequence % 2 == 1);
    options.hysteresis = hysteresis_of(sequence);
    return options;
});
auto const pytorch_rule = [](int sequence) {
    return PyTorchRule{.interval = static_cast<int>(interval_of(sequence)) + 2};
};
auto const pytorch_options = [](int sequence) {
    DynamicLossScalerOptions options = presets::pytorch();
    options.growth_interval = interval_of(sequence) + 2;
    return options;
};
auto const apex_rule = [](int sequence) {
    return ApexRule{.inner = {.interval = static_cast<int>(interval_of(sequence))},
                    .hysteresis = static_cast<int>(hysteresis_of(sequence))};
};
auto const apex_options =
    shortened([](int sequence) { return presets::apex(hysteresis_of(sequence)); });
auto const megatron_rule = [](int sequence) {
    return MegatronRule{.interval = static_cast<int>(interval_of(sequence)) + 3,
                        .hysteresis = static_cast<int>(hysteresis_of(sequence))};
};
auto const megatron_options = [](int sequence) {
    DynamicLossScalerOptions options = presets::megatron();
    options.growth_interval = interval_of(sequence) + 3;
    options.hysteresis = hysteresis_of(sequence);
    return options;
};

} // namespace

TEST_CASE(
    "The DeepSpeed preset equals DeepSpeed's rule step by step, and is exhausted where it throws") {
    Tally const tally = compare(deepspeed_rule, deepspeed_options);
    check_equal(tally);
    CHECK(tally.exhaustions > 100);
}

TEST_CASE("The PyTorch preset equals GradScaler's rule step by step") {
    check_equal(compare(pytorch_rule, pytorch_options));
}

TEST_CASE("The Apex preset equals the rule of update_scale_hysteresis step by step") {
    check_equal(compare(apex_rule, apex_options));
}

TEST_CASE("The Megatron preset equals Megatron-LM's rule step by step") {
    check_equal(compare(megatron_rule, megatron_options));
}

TEST_CASE("The comparison distinguishes the rules and each option of a preset") {
    auto const changed = [](auto make, auto member, auto value) {
        return [=](int sequence) {
            auto options = make(sequence);
            options.*member = value;
            return options;
        };
    };
    using Options = DynamicLossScalerOptions;
    CHECK(compare(deepspeed_rule, changed(deepspeed_options, &Options::growth_delay, 0U))
              .scales_differ
          > 1000);
    CHECK(
        compare(deepspeed_rule, changed(deepspeed_options, &Options::consecutive_hysteresis, true))
            .scales_differ
        > 1000);
    CHECK(compare(deepspeed_rule, changed(deepspeed_options, &Options::minimum, 0.5F))
              .exhaustion_differs
          > 100);
    CHECK(compare(pytorch_rule, changed(pytorch_options, &Options::hysteresis, 2U)).scales_differ
          > 1000);
    CHECK(compare(pytorch_rule, changed(pytorch_options, &Options::maximum, 0x1p17F)).scales_differ
          > 1000);
    CHECK(compare(apex_rule, changed(apex_options, &Options::consecutive_hysteresis, false))
              .scales_differ
          > 1000);
    CHECK(compare(megatron_rule, changed(megatron_options, &Options::consecutive_hysteresis, true))
              .scales_differ
          > 1000);
    CHECK(
        compare(megatron_rule, changed(megatron_options, &Options::growth_delay, 1U)).scales_differ
        > 1000);
}

} // namespace zero::test::loss_scaler_rules_test
