#include "guides/ada_max.hpp"
#include "ops/optimizer_conformance.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

// The optimizer of docs/guides/own_optimizer.md in the conformance suite of the optimizers
// of the library.

namespace zero::test::ada_max_test {

namespace {

struct AdaMaxFixture {
    using Optimizer = AdaMax;
    using Options = AdaMaxOptions;

    static Options with_decay(double weight_decay) { return {.weight_decay = weight_decay}; }
    static std::vector<Run<Options>> mistakes() {
        return {{.mistake = "beta1", .options = {.beta1 = 0.89, .weight_decay = 0.1}},
                {.mistake = "beta2", .options = {.beta2 = 0.99, .weight_decay = 0.1}},
                {.mistake = "epsilon", .options = {.epsilon = 1e-5, .weight_decay = 0.1}},
                {.mistake = "weight decay", .options = with_decay(0.101)},
                {.mistake = "bias correction", .options = with_decay(0.1), .first_step = 2}};
    }

    static Options odd() {
        return {.beta1 = 0.7, .beta2 = 0.8, .epsilon = 1e-4, .weight_decay = 0.3};
    }
    static constexpr std::array trajectory{0.450012496876, 0.469901349784, 0.474636049507,
                                           0.490966631738};

    static double reference(Options const& options, double g, double p, double (&state)[2],
                            double learning_rate, int t) {
        double const slope = g + options.weight_decay * p;
        state[0] = options.beta1 * state[0] + (1.0 - options.beta1) * slope;
        state[1] = std::max(options.beta2 * state[1], std::fabs(slope));
        return p
               - learning_rate / (1.0 - std::pow(options.beta1, t)) * state[0]
                     / (state[1] + options.epsilon);
    }

    static void exact(Options const& options, float g, float& p, float (&state)[2],
                      double learning_rate, int t) {
        auto const rate1 = static_cast<float>(1.0 - options.beta1);
        auto const step =
            static_cast<float>(-learning_rate / (1.0 - small_power(options.beta1, t)));
        float const slope = std::fma(static_cast<float>(options.weight_decay), p, g);
        state[0] = std::fma(rate1, slope, std::fma(-rate1, state[0], state[0]));
        state[1] = std::max(rounded_product(static_cast<float>(options.beta2), state[1]),
                            std::fabs(slope));
        p = std::fma(step, state[0] / (state[1] + static_cast<float>(options.epsilon)), p);
    }
};

} // namespace

TEST_CASE("The optimizer of the guide computes exactly the documented operations") {
    check_exact_operations<AdaMaxFixture>();
    check_functor_needs_only_ops<AdaMaxFixture>();
}

TEST_CASE("The optimizer of the guide follows the trajectory and double precision") {
    check_trajectory<AdaMaxFixture>();
    check_double_precision<AdaMaxFixture>();
    check_mistakes_are_found<AdaMaxFixture>();
}

TEST_CASE("The optimizer of the guide gives the same bits in packs and element by element") {
    check_packs<AdaMaxFixture>();
}

TEST_CASE("The optimizer of the guide treats zeros and NaNs as those that ship") {
    check_zero_gradient<AdaMaxFixture>();
    check_zero_learning_rate<AdaMaxFixture>();
    check_nan_gradient<AdaMaxFixture>();
}

TEST_CASE("The optimizer of the guide refuses options out of range") {
    CHECK_NOTHROW(AdaMax::validate({}));
    for (AdaMaxOptions const& options :
         {AdaMaxOptions{.beta1 = 1.0}, {.beta2 = -0.1}, {.epsilon = 0.0}, {.weight_decay = -1.0}})
        CHECK_THROWS_AS(AdaMax::validate(options), InvalidArgument);
}

} // namespace zero::test::ada_max_test
