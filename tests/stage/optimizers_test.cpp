#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"

#include <zero/zero.hpp>

#include <vector>

// The oracle checks every bit for two optimizers; here the others take the same path through the
// engine.

namespace zero::test::optimizers_test {

namespace {

constexpr int world = 3;

/// Returns the parameters that each rank has after four steps: bfloat16, with float master weights.
template <int N, class Optimizer>
std::vector<std::vector<std::vector<float>>> train(double learning_rate = 0.01) {
    using Stage = ZeroStage<N, Parameters<bfloat16>, GradientReduction<float>, Optimizer>;
    return on_ranks<std::vector<std::vector<float>>>(
        world, [&](LoopbackCommunicator& communicator) {
            auto const parameters = registration<bfloat16, float>(toy_specs());
            typename Optimizer::Options optimizer;
            optimizer.weight_decay = 0.1;
            Stage engine(communicator, parameters,
                         {.optimizer = optimizer,
                          .reduction = {.schedule = ReductionSchedule::every_micro_step}});
            for (std::uint64_t step = 0; step < 4; ++step) {
                (void)run_step(engine, static_cast<std::uint64_t>(communicator.rank()), step, 2,
                               learning_rate);
            }
            return full_parameters(engine);
        });
}

} // namespace

TEMPLATE_TEST_CASE("An optimizer gives the same bits in every stage and on every rank",
                   "[stage][optimizer]", Adagrad, Adam, Lion) {
    auto const expected = train<0, TestType>();
    CHECK(expected[0] == expected[1]);
    CHECK(expected[0] == expected[2]);
    CHECK(train<1, TestType>() == expected);
    CHECK(train<2, TestType>() == expected);
    CHECK(train<3, TestType>() == expected);
    CHECK(train<3, TestType>(0.02) != expected);
}

} // namespace zero::test::optimizers_test
