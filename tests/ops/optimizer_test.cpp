#include "zero/ops/adamw.hpp"
#include "zero/ops/sgd.hpp"

#include "support/catch.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>

namespace {

using namespace zero;
using zero::test::contains_text;

static_assert(std::is_same_v<AdamW::policy_category, OptimizerCategory> && AdamW::states == 2 && !AdamW::whole_tensor);
static_assert(std::is_same_v<Sgd::policy_category, OptimizerCategory> && Sgd::states == 1 && !Sgd::whole_tensor);
static_assert(std::is_trivially_copyable_v<AdamW::Hyper> && std::is_trivially_copyable_v<Sgd::Hyper>);
static_assert(std::is_empty_v<AdamW> && std::is_empty_v<Sgd>);

float product(float a, float b) {
    float const volatile result = a * b; // stored, so that nothing fuses it with a sum
    return result;
}

TEST_CASE("AdamW computes exactly the documented operations in the documented order", "[ops]") {
    AdamWOptions const options{.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6, .weight_decay = 0.3};
    auto const rate1 = static_cast<float>(1.0 - 0.8);
    auto const beta2 = static_cast<float>(0.95);
    auto const rate2 = static_cast<float>(1.0 - 0.95);
    std::mt19937 engine(3);
    std::normal_distribution<float> normal;
    float p = 0.7F;
    float m = 0.0F;
    float v = 0.0F;
    float parameter = p;
    float state[2] = {m, v};
    double power1 = 1.0;
    double power2 = 1.0;
    for (std::uint64_t step = 1; step <= 3; ++step) { // a power of at most 3 has only one order of multiplications
        power1 *= 1.0 - static_cast<double>(rate1);
        power2 *= static_cast<double>(beta2);
        double const volatile correction2 = static_cast<double>(rate2) * ((1.0 - power2) / (1.0 - static_cast<double>(beta2)));
        auto const step_size = static_cast<float>(0.01 / (1.0 - power1));
        auto const inverse_root = static_cast<float>(1.0 / std::sqrt(correction2));
        auto const decay = static_cast<float>(0.01 * 0.3);
        float const g = normal(engine);

        m = std::fma(rate1, g, std::fma(-rate1, m, m));
        v = std::fma(beta2, v, product(rate2, product(g, g)));
        float const d = std::fma(inverse_root, std::sqrt(v), 1e-6F);
        p = p - std::fma(step_size, m / d, product(decay, p));

        AdamW{}(g, parameter, state, AdamW::hyper(options, 0.01, step));
        CAPTURE(step);
        CHECK(parameter == p);
        CHECK(state[0] == m);
        CHECK(state[1] == v);
    }
}

TEST_CASE("AdamW's first step has the length of the learning rate, whatever the size of the gradient", "[ops]") {
    for (float const gradient : {1e-3F, 1.0F, 1e6F}) {
        float parameter = 0.0F;
        float state[2] = {};
        AdamW{}(gradient, parameter, state, AdamW::hyper({.weight_decay = 0.0}, 0.25, 1));
        CHECK(std::fabs(parameter + 0.25F) < 1e-5F);
    }
}

TEST_CASE("AdamW's moments decay without a gradient, and a square beyond float freezes the element instead of destroying it", "[ops]") {
    float parameter = 1.0F;
    float state[2] = {0.5F, 0.25F};
    AdamW{}(0.0F, parameter, state, AdamW::hyper({}, 0.1, 2));
    CHECK(state[0] == 0.45F);
    CHECK(state[1] == 0.24975F);

    parameter = 1.0F;
    for (std::uint64_t step = 1; step <= 3; ++step) {
        AdamW{}(step == 1 ? 1e20F : 1.0F, parameter, state, AdamW::hyper({.weight_decay = 0.0}, 0.1, step));
    }
    CHECK(state[1] == std::numeric_limits<float>::infinity());
    CHECK(parameter == 1.0F);
}

TEST_CASE("Sgd computes exactly the documented operations in the documented order", "[ops]") {
    bool const nesterov = GENERATE(false, true);
    SgdOptions const options{.momentum = 0.8, .weight_decay = 0.3, .nesterov = nesterov};
    float p = 0.7F;
    float b = 0.0F;
    float parameter = p;
    float state[1] = {b};
    for (std::uint64_t step = 1; step <= 5; ++step) {
        float const g = 0.3F * static_cast<float>(step) - 1.0F;
        float const d = std::fma(0.3F, p, g);
        b = std::fma(0.8F, b, d);
        p = std::fma(-0.01F, nesterov ? std::fma(0.8F, b, d) : b, p);
        Sgd{}(g, parameter, state, Sgd::hyper(options, 0.01, step));
        CHECK(parameter == p);
        CHECK(state[0] == b);
        if (step == 1) {
            CHECK(b == d);
        }
    }
}

TEST_CASE("Hyper-parameters out of their range are refused with the name of the field", "[ops]") {
    double const nan = std::numeric_limits<double>::quiet_NaN();
    double const infinity = std::numeric_limits<double>::infinity();
    CHECK_NOTHROW(AdamW::validate({}));
    CHECK_NOTHROW(AdamW::validate({.beta1 = 0.0, .beta2 = 0.0, .epsilon = 0.0, .weight_decay = 0.0}));
    for (double const bad : {-0.1, 1.0, 1.5, nan, infinity, 1.0 - 1e-12}) { // the last one is 1 in float
        CAPTURE(bad);
        CHECK_THROWS_AS(AdamW::validate({.beta1 = bad}), InvalidArgument);
        CHECK_THROWS_WITH(AdamW::validate({.beta1 = bad}), contains_text("zero::AdamW: beta1 is"));
        CHECK_THROWS_WITH(AdamW::validate({.beta2 = bad}), contains_text("zero::AdamW: beta2 is"));
        CHECK_THROWS_WITH(Sgd::validate({.momentum = bad}), contains_text("zero::Sgd: momentum is"));
    }
    for (double const bad : {-1e-9, nan, infinity, 1e39}) {
        CAPTURE(bad);
        CHECK_THROWS_WITH(AdamW::validate({.epsilon = bad}), contains_text("zero::AdamW: epsilon is"));
        CHECK_THROWS_WITH(AdamW::validate({.weight_decay = bad}), contains_text("zero::AdamW: weight_decay is"));
        CHECK_THROWS_WITH(Sgd::validate({.weight_decay = bad}), contains_text("zero::Sgd: weight_decay is"));
    }
    CHECK_THROWS_WITH(AdamW::validate({.beta2 = 1.5}), "zero::AdamW: beta2 is 1.5; it must be at least 0 and less than 1.");
    CHECK_NOTHROW(Sgd::validate({}));
}

} // namespace
