// Checks specific to one optimizer. optimizer_conformance_test.cpp checks the common guarantees.

#include <zero/ops/adagrad.hpp>
#include <zero/ops/adam.hpp>
#include <zero/ops/adamw.hpp>
#include <zero/ops/lion.hpp>
#include <zero/ops/sgd.hpp>

#include "support/catch.hpp"

#include <cmath>
#include <cstdint>
#include <limits>

namespace zero::test::optimizer_test {

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

TEST_CASE("Each optimizer declares its number of states per element", "[ops]") {
    STATIC_REQUIRE(Adam::states == 2);
    STATIC_REQUIRE(AdamW::states == 2);
    STATIC_REQUIRE(Lion::states == 1);
    STATIC_REQUIRE(Adagrad::states == 1);
    STATIC_REQUIRE(Sgd::states == 1);
    STATIC_REQUIRE_FALSE(Adam::whole_tensor || AdamW::whole_tensor || Lion::whole_tensor
                         || Adagrad::whole_tensor || Sgd::whole_tensor);
}

TEMPLATE_TEST_CASE(
    "The first step has the length of the learning rate, for every size of the gradient", "[ops]",
    Adam, AdamW, Lion, Adagrad) {
    for (float const gradient : {1e-3F, -1.0F, 1e6F}) {
        typename TestType::Options options;
        options.weight_decay = 0.0;
        float parameter = 0.0F;
        float state[TestType::states] = {};
        TestType{}(gradient, parameter, state, TestType::hyper(options, 0.25, 1));
        CHECK(std::fabs(parameter + std::copysign(0.25F, gradient)) < 1e-5F);
    }
}

TEST_CASE("Without weight decay Adam and AdamW differ by one rounding, and with it by more",
          "[ops]") {
    auto const both = [](double weight_decay) {
        float coupled = 0.5F;
        float decoupled = 0.5F;
        float state[2] = {};
        float decoupled_state[2] = {};
        for (std::uint64_t step = 1; step <= 5; ++step) {
            float const gradient = 0.125F * static_cast<float>(step) - 0.5F;
            Adam{}(gradient, coupled, state,
                   Adam::hyper({.weight_decay = weight_decay}, 0.1, step));
            AdamW{}(gradient, decoupled, decoupled_state,
                    AdamW::hyper({.weight_decay = weight_decay}, 0.1, step));
        }
        return std::fabs(coupled - decoupled);
    };
    CHECK(both(0.0) < 1e-6F);
    CHECK(both(0.1) > 1e-3F);
}

TEST_CASE("AdamW's moments decay without a gradient", "[ops]") {
    float parameter = 1.0F;
    float state[2] = {0.5F, 0.25F};
    AdamW{}(0.0F, parameter, state, AdamW::hyper({}, 0.1, 2));
    CHECK(state[0] == 0.45F);
    CHECK(state[1] == 0.24975F);
}

TEMPLATE_TEST_CASE("A square that overflows float freezes the element and does not make it NaN",
                   "[ops]", Adam, AdamW, Adagrad) {
    typename TestType::Options options;
    options.weight_decay = 0.0;
    float parameter = 1.0F;
    float state[TestType::states] = {};
    for (std::uint64_t step = 1; step <= 3; ++step) {
        TestType{}(step == 1 ? 1e20F : 1.0F, parameter, state, TestType::hyper(options, 0.1, step));
    }
    CHECK(state[TestType::states - 1] == infinity);
    CHECK(parameter == 1.0F);
}

TEST_CASE("Sgd's momentum is the gradient after the first step, without dampening", "[ops]") {
    float parameter = 1.0F;
    float state[1] = {};
    Sgd{}(0.25F, parameter, state, Sgd::hyper({.momentum = 0.5}, 0.125, 1));
    CHECK(state[0] == 0.25F);
    CHECK(parameter == 0.96875F);
}

TEST_CASE("Lion follows the momentum against a small gradient, and does not move where both cancel",
          "[ops]") {
    LionOptions const options{.beta1 = 0.5, .beta2 = 0.5};
    float parameter = 1.0F;
    float state[1] = {1.0F};
    Lion{}(-0.25F, parameter, state, Lion::hyper(options, 0.125, 1));
    CHECK(parameter == 0.875F);
    CHECK(state[0] == 0.375F);
    Lion{}(-0.375F, parameter, state, Lion::hyper(options, 0.125, 2));
    CHECK(parameter == 0.875F);
    CHECK(state[0] == 0.0F);
}

TEST_CASE("Adagrad's steps shrink with the root of the sum of squares", "[ops]") {
    float parameter = 0.0F;
    float state[1] = {};
    auto const hyper = Adagrad::hyper({.epsilon = 0.0}, 1.0, 1);
    Adagrad{}(3.0F, parameter, state, hyper);
    CHECK(parameter == -1.0F);
    Adagrad{}(4.0F, parameter, state, hyper);
    CHECK(state[0] == 25.0F);
    CHECK(parameter == std::fma(-1.0F, 4.0F / 5.0F, -1.0F));
}

} // namespace

} // namespace zero::test::optimizer_test
