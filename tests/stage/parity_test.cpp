#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"

#include <zero/ops/sgd.hpp>
#include <zero/stage/zero_stage.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

// The engine on three ranks, compared with optimizers in double precision that follow the published
// algorithms.

namespace zero::test::parity_test {

namespace {

constexpr int world = 3;
constexpr int steps = 20;
constexpr double promise = 4.0;
// Updates must outweigh the parameters, whose own rounding would hide every other error.
constexpr double learning_rate = 0.3;
constexpr double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.1, momentum = 0.9;

std::vector<ParameterSpec> specs() {
    return {{"a", 700, {0}, 0, true}, {"b", 301, {1}, 0, true}};
}

float initial(std::size_t parameter, std::size_t i) {
    return 0.02F * noise(11, parameter, i);
}

/// Returns the gradient of a rank. It is a multiple of 2^-20, so that sums over ranks are exact in
/// float; other tests cover the rounding of sums.
float recorded(std::uint64_t rank, int step, std::size_t parameter, std::size_t i) {
    float const size =
        1.0F
        / static_cast<float>(
            1 << (step % 3)); // decay rates matter only if gradients change their size
    return size
           * (std::round(noise(20 + rank, static_cast<std::uint64_t>(step), parameter, i) * 0x1p17F)
                  * 0x1p-17F
              + 0.25F);
}

/// The deviation of a run from the reference: none, or one of the mistakes that the comparison must
/// find.
struct Mistake {
    double learning_rate_factor = 1.0;
    double beta2 = zero::AdamWOptions{}.beta2;
    bool misses_average = false;
    bool is_one_step_on = false;
    std::size_t shift = 0;
};

/// Trains in float through an engine, and returns the parameters that each rank has.
template <int N, class Optimizer>
std::vector<std::vector<std::vector<float>>> train(typename Optimizer::Options const& optimizer,
                                                   Mistake const& mistake) {
    using Stage = ZeroStage<N, Optimizer>;
    return on_ranks<std::vector<std::vector<float>>>(
        world, [&](LoopbackCommunicator& communicator) {
            auto const rank = static_cast<std::uint64_t>(communicator.rank());
            auto parameters = registration<float>(specs());
            for (std::size_t index = 0; index < parameters.size(); ++index) {
                parameters[index].initialise = [index](std::size_t begin, std::span<float> values) {
                    for (std::size_t i = 0; i < values.size(); ++i) {
                        values[i] = initial(index, begin + i);
                    }
                };
            }
            Stage engine(communicator, parameters,
                         {.optimizer = optimizer,
                          .reduction = {.kind = mistake.misses_average ? ReductionKind::sum
                                                                       : ReductionKind::mean}});
            if (mistake.is_one_step_on) { // a step that changes nothing but the step count
                engine.begin_step();
                for (auto const micro_step : engine.micro_steps(1)) {
                    (void)engine.gradients(0)[0]; // zeros
                }
                (void)engine.step(0.0);
            }
            for (int step = 0; step < steps; ++step) {
                engine.begin_step();
                for (auto const micro_step : engine.micro_steps(1)) {
                    for (std::size_t const unit : {1U, 0U}) { // one parameter each
                        auto const gradients = engine.gradients(unit);
                        auto const gradient = gradients[unit];
                        for (std::size_t i = 0; i < gradient.size(); ++i) {
                            gradient[i] +=
                                recorded(rank, step, unit, (i + mistake.shift) % gradient.size());
                        }
                        engine.gradients_ready(unit);
                    }
                }
                (void)engine.step(learning_rate * mistake.learning_rate_factor);
            }
            return full_parameters(engine);
        });
}

/// Returns the largest |p - reference| / (2^-24 * (|reference| + sum of |reference update|)) over
/// all elements and ranks.
template <class Reference>
double worst_error(std::vector<std::vector<std::vector<float>>> const& ranks,
                   Reference const& reference) {
    double worst = 0.0;
    for (std::size_t parameter = 0; parameter < specs().size(); ++parameter) {
        for (std::size_t i = 0; i < specs()[parameter].elements; ++i) {
            auto expected = static_cast<double>(initial(parameter, i));
            double moved = 0.0;
            double state[2] = {};
            for (int step = 0; step < steps; ++step) {
                double sum = 0.0;
                for (std::uint64_t rank = 0; rank < world; ++rank) {
                    sum += static_cast<double>(recorded(rank, step, parameter, i));
                }
                double const before = expected;
                expected = reference(before, sum / world, state, step + 1);
                moved += std::fabs(expected - before);
            }
            for (auto const& values : ranks) {
                worst =
                    std::max(worst, std::fabs(static_cast<double>(values[parameter][i]) - expected)
                                        / (0x1p-24 * (std::fabs(expected) + moved)));
            }
        }
    }
    return worst;
}

template <int N>
double adamw_error(Mistake const& mistake = {}) {
    return worst_error(train<N, AdamW>({.beta1 = beta1,
                                        .beta2 = mistake.beta2,
                                        .epsilon = epsilon,
                                        .weight_decay = weight_decay},
                                       mistake),
                       [](double p, double g, double(&state)[2], int t) {
                           state[0] = beta1 * state[0] + (1.0 - beta1) * g;
                           state[1] = beta2 * state[1] + (1.0 - beta2) * g * g;
                           double const mean = state[0] / (1.0 - std::pow(beta1, t));
                           double const square = state[1] / (1.0 - std::pow(beta2, t));
                           return p * (1.0 - learning_rate * weight_decay)
                                  - learning_rate * mean / (std::sqrt(square) + epsilon);
                       });
}

template <int N>
double sgd_error(Mistake const& mistake = {}) {
    return worst_error(train<N, Sgd>({.momentum = momentum, .weight_decay = weight_decay}, mistake),
                       [](double p, double g, double(&state)[2], int) {
                           state[0] = momentum * state[0] + g + weight_decay * p;
                           return p - learning_rate * state[0];
                       });
}

} // namespace

TEST_CASE("AdamW through the engine follows double precision for 20 steps") {
    CHECK(adamw_error<0>() <= promise);
    CHECK(adamw_error<3>() <= promise);
}

TEST_CASE("Sgd through the engine follows double precision for 20 steps") {
    CHECK(sgd_error<0>() <= promise);
    CHECK(sgd_error<3>() <= promise);
}

TEMPLATE_TEST_CASE_SIG("The comparison with double precision finds every deliberate mistake", "",
                       ((int N), N), 0, 3) {
    CHECK(adamw_error<N>({.learning_rate_factor = 1.001}) > promise);
    CHECK(adamw_error<N>({.beta2 = 0.998}) > promise);
    CHECK(adamw_error<N>({.misses_average = true}) > promise);
    CHECK(adamw_error<N>({.is_one_step_on = true}) > promise);
    CHECK(adamw_error<N>({.shift = 1}) > promise);
    CHECK(sgd_error<N>({.learning_rate_factor = 1.001}) > promise);
    CHECK(sgd_error<N>({.misses_average = true}) > promise);
    CHECK(sgd_error<N>({.shift = 1}) > promise);
}

} // namespace zero::test::parity_test
