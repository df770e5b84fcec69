#include "fake_communicator.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/toy_model.hpp"

#include "zero/comm/recording.hpp"
#include "zero/stage/zero_stage.hpp"

#include <cstdint>
#include <future>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

// The engine over the NCCL communicator, whose fake library sums in the order of the ranks: what it trains has the bits of the loopback.

namespace zero::test::nccl_stage_test {

namespace {

using Values = std::vector<std::vector<float>>; ///< by parameter

template <class Stage, class Communicator>
Values train(Communicator& communicator, typename Stage::Options options) {
    options.reduction.schedule = ReductionSchedule::boundary; // the default differs between stages
    auto const parameters = registration<typename Stage::ParameterType, typename Stage::GradientType>(toy_specs());
    Stage engine(communicator, parameters, options);
    for (std::uint64_t step = 0; step < 3; ++step) {
        (void)run_step(engine, static_cast<std::uint64_t>(communicator.rank()), step, 2, 0.01, 12);
    }
    return full_parameters(engine);
}

template <int N, class Communicator, class... Policies>
Values train_on(int world) {
    using Stage = ZeroStage<N, Communicator, Policies...>;
    typename Stage::Options options{};
    options.gradient_clipping = 1.0F;
    std::vector<Values> ranks(static_cast<std::size_t>(world));
    auto const body = [&](Communicator& communicator) { ranks[static_cast<std::size_t>(communicator.rank())] = train<Stage>(communicator, options); };
    if constexpr (std::is_same_v<Communicator, LoopbackCommunicator>) {
        run_ranks(world, test_time_out, body);
    } else {
        run_nccl_ranks<Communicator>(world, body);
    }
    for (auto const& rank : ranks) {
        CHECK(rank == ranks[0]);
    }
    return ranks[0];
}

using NonBlocking = FakeNcclCommunicator<cuda::NcclMode::non_blocking>;
using Half = Parameters<bfloat16>;

} // namespace

TEMPLATE_TEST_CASE_SIG("an engine over NCCL trains as over the loopback: even cuts", "", ((int N), N), 0, 1, 2, 3) {
    for (int const world : {1, 2, 3}) {
        CHECK(train_on<N, NonBlocking>(world) == train_on<2, LoopbackCommunicator>(world));
    }
}

TEMPLATE_TEST_CASE_SIG("an engine over NCCL trains as over the loopback: uneven cuts and 16-bit gradients", "", ((int N), N), 0, 2) {
    CHECK(train_on<N, NonBlocking, Half, RoundRobinPartitioner>(3) == train_on<1, LoopbackCommunicator, Half, RoundRobinPartitioner>(3));
}

TEST_CASE("another number of ranks trains other bits, so the comparison can fail") {
    CHECK(train_on<2, LoopbackCommunicator>(2) != train_on<2, LoopbackCommunicator>(3));
}

TEST_CASE("a rank that fails inside a step releases the others, with its reason") {
    Outcomes const outcomes = run_and_observe<NonBlocking>(3, [](NonBlocking& communicator) {
        using Stage = ZeroStage<2, NonBlocking>;
        auto const parameters = registration<float>(toy_specs());
        Stage engine(communicator, parameters, {});
        for (std::uint64_t step = 0; step < 1000; ++step) {
            if (communicator.rank() == 1 && step == 2) {
                engine.begin_step();
                throw std::runtime_error("no more data");
            }
            (void)run_step(engine, static_cast<std::uint64_t>(communicator.rank()), step);
        }
    });
    for (std::size_t const rank : {0U, 2U}) {
        CHECK(outcomes.ranks[rank].type == "Aborted");
        CHECK_THAT(outcomes.ranks[rank].message, contains_text("rank 1"));
    }
    CHECK(outcomes.rethrown.message == "no more data");
}

TEMPLATE_TEST_CASE("a step that hangs on the device can not be reported as done", "", NonBlocking, Recording<NonBlocking>) {
    std::promise<void> is_enqueued;
    std::string text = "nothing was thrown";
    run_nccl_ranks<NonBlocking>(2, [&](NonBlocking& inner) {
        std::conditional_t<std::is_same_v<TestType, NonBlocking>, NonBlocking&, TestType> communicator(inner);
        using Stage = ZeroStage<2, TestType>;
        auto const parameters = registration<float>(toy_specs());
        Stage engine(communicator, parameters, {});
        (void)run_step(engine, static_cast<std::uint64_t>(inner.rank()), 0).report();
        if (inner.rank() == 1) {
            is_enqueued.get_future().wait();
            inner.abort("the reason of rank 1");
            return;
        }
        auto const ticket = run_step(engine, 0, 1);
        is_enqueued.set_value();
        try {
            (void)ticket.report(); // the wait ends with the abort, and the numbers are rubbish
        } catch (Aborted const& error) {
            text = error.what();
        }
    });
    CHECK_THAT(text, contains_text("the reason of rank 1"));
}

} // namespace zero::test::nccl_stage_test
