#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <zero/comm/checked.hpp>
#include <zero/layout/size_capped_bucketer.hpp>
#include <zero/ops/sgd.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

// Messages name units, first parameters of buckets, both learning rates, and one line of a cause.

namespace zero::test::messages_test {

namespace {

using Registrations = std::vector<Parameter<float>>;

Registrations model() {
    return {{.name = "embedding", .elements = 64, .units = {0}},
            {.name = "middle", .elements = 64, .units = {1}},
            {.name = "head", .elements = 64, .units = {2}}};
}

std::vector<std::string> const names{"input", "block.0", "output"};

template <class Engine>
void write(Engine& engine) {
    engine.begin_step();
    engine.begin_micro_step(MicroStep::last);
    engine.gradients(0)[0][0] = 1.0F;
    engine.end_micro_step();
}

} // namespace

TEST_CASE("A step while weights are held names the acquired unit, not a bucket's first parameter") {
    auto const messages =
        on_ranks<std::vector<std::string>>(1, [](LoopbackCommunicator& communicator) {
            std::vector<std::string> found;
            for (bool const is_named : {true, false}) {
                ZeroStage<2, Sgd> engine(
                    communicator, model(), // one bucket for all units
                    {.unit_names = is_named ? names : std::vector<std::string>()});
                write(engine);
                auto const weights = engine.acquire(1);
                found.push_back(outcome_of([&] { (void)engine.step(0.1); }).message);
                engine.cancel_step();
            }
            return found;
        })[0];
    CHECK(messages[0]
          == "zero: step() while weights of unit 1 ('block.0') (parameter 'middle') are held; "
             "release all handles first (rank 0).");
    CHECK(messages[1]
          == "zero: step() while weights of unit 1 (parameter 'middle') are held; release all "
             "handles first (rank 0).");
}

TEST_CASE("Messages about buckets name their first parameter and the unit") {
    auto const message = on_ranks<Outcome>(1,
                                           [](LoopbackCommunicator& communicator) {
                                               ZeroStage<2, UnitBucketer, Sgd> engine(
                                                   communicator, model(), {.unit_names = names});
                                               engine.begin_step();
                                               engine.begin_micro_step();
                                               (void)engine.gradients(0);
                                               Outcome const outcome =
                                                   outcome_of([&] { (void)engine.gradients(1); });
                                               engine.cancel_step();
                                               return outcome;
                                           })[0]
                             .message;
    CHECK_THAT(message, contains_text("zero: unit 1 ('block.0') comes out of order: its bucket 1 "
                                      "(first parameter 'middle') finds no free gradient lease"));
}

TEST_CASE("The engine of an adapter names the adapter's call, not the calls that it makes") {
    auto const messages =
        on_ranks<std::vector<std::string>>(1, [](LoopbackCommunicator& communicator) {
            std::vector<std::string> found;
            ZeroStage<2, UnitBucketer, Sgd> engine(communicator, model(),
                                                   {.unused_parameters = UnusedParameters::error,
                                                    .backward_call = "adapter.backward(loss)"});
            auto const add = [&](auto const& call) { found.push_back(outcome_of(call).message); };
            std::vector<float> const gradient(64, 1.0F);
            engine.begin_step();
            add([&] { (void)engine.gradients(0); });
            add([&] { (void)engine.hand_over(0, 0, std::span(gradient)); });
            add([&] { engine.gradients_ready(0); });
            engine.begin_micro_step(MicroStep::last);
            (void)engine.gradients(0);
            add([&] { (void)engine.gradients(1); });
            engine.gradients_ready(0);
            add([&] { (void)engine.gradients(0); });
            add([&] { (void)engine.hand_over(0, 0, std::span(gradient)); });
            add([&] { engine.end_micro_step(); });
            engine.cancel_step();
            return found;
        })[0];
    std::vector<std::string> const expected{
        "adapter.backward(loss) outside a micro-step",
        "adapter.backward(loss) outside a micro-step",
        "adapter.backward(loss) outside a micro-step",
        "list the units in the order in which the forward pass uses them, or set extra_leases",
        "come from a second backward pass of this micro-step (rank 0); call adapter.backward(loss)",
        "come from a second backward pass of this micro-step (rank 0); call adapter.backward(loss)",
        "call adapter.backward(loss) on every rank, with a loss that depends on it, freeze"};
    REQUIRE(messages.size() == expected.size());
    for (std::size_t number = 0; number < expected.size(); ++number) {
        INFO(messages[number]);
        CHECK_THAT(messages[number], contains_text(expected[number]));
        for (char const* const word : {"gradients_ready", "gradients(", "hand_over"}) {
            CHECK(messages[number].find(word) == std::string::npos);
        }
    }
    auto const none = on_ranks<Outcome>(1, [](LoopbackCommunicator& communicator) {
        ZeroStage<2, Sgd> engine(communicator, model(),
                                 {.backward_call = "adapter.backward(loss)"});
        engine.begin_step();
        engine.begin_micro_step(MicroStep::last);
        engine.end_micro_step();
        return outcome_of([&] { (void)engine.step(0.1).report(); });
    })[0];
    CHECK(none.type == "NoGradients");
    CHECK_THAT(none.message, contains_text("; call adapter.backward(loss) in each micro-step"));
}

TEST_CASE("Another number of unit names than units is refused") {
    auto const outcome = on_ranks<Outcome>(1, [](LoopbackCommunicator& communicator) {
        return outcome_of(
            [&] { ZeroStage<2, Sgd> engine(communicator, model(), {.unit_names = {"one"}}); });
    })[0];
    CHECK(outcome.type == "InvalidArgument");
    CHECK_THAT(outcome.message, contains_text("unit_names has 1 names, but the parameters name 3"));
}

TEST_CASE("Ranks with other learning rates read both rates, over the loopback and when checked") {
    auto const train = [](auto& communicator) {
        using Communicator = std::remove_reference_t<decltype(communicator)>;
        ZeroStage<1, Communicator, Sgd> engine(communicator, model());
        write(engine);
        (void)engine.step(communicator.rank() == 1 ? 0.1 : 0.01);
    };
    auto const plain =
        run_and_observe(2, [&](LoopbackCommunicator& communicator) { train(communicator); });
    auto const checked = run_and_observe(2, [&](LoopbackCommunicator& communicator) {
        Checked<LoopbackCommunicator> checking(communicator);
        train(checking);
    });
    for (auto const& outcomes : {plain, checked}) {
        for (auto const& rank : outcomes.ranks) {
            CHECK(rank.type == "CollectiveMismatch");
            CHECK_THAT(rank.message,
                       contains_text("'rate 0.01") && contains_text("'rate 0.10000000000000001"));
        }
    }
}

TEST_CASE("A mismatch names the first parameter of both buckets, and the units that need them") {
    auto const differ = [](auto& communicator) {
        using Communicator = std::remove_reference_t<decltype(communicator)>;
        ZeroStage<3, Communicator, Sgd> engine(communicator, model());
        auto const weights = engine.acquire(communicator.rank() == 1 ? 2U : 1U);
    };
    auto const plain =
        run_and_observe(2, [&](LoopbackCommunicator& communicator) { differ(communicator); });
    auto const checked = run_and_observe(2, [&](LoopbackCommunicator& communicator) {
        Checked<LoopbackCommunicator> checking(communicator);
        differ(checking);
    });
    for (auto const& outcomes : {plain, checked}) {
        CHECK_THAT(
            outcomes.ranks[0].message,
            contains_text("', first parameter 'middle', for unit 1 outside of micro-steps, cuts"));
        CHECK_THAT(
            outcomes.ranks[0].message,
            contains_text("', first parameter 'head', for unit 2 outside of micro-steps, cuts"));
    }
}

TEST_CASE("Peers read only the first line of a cause") {
    auto const outcomes = run_and_observe(2, [](LoopbackCommunicator& communicator) {
        if (communicator.rank() == 1) {
            throw std::runtime_error("out of memory\nframe #0: allocate\r\nframe #1: main");
        }
        ZeroStage<1, Sgd> engine(communicator, model());
    });
    CHECK_THAT(outcomes.ranks[0].message, contains_text("rank 1: out of memory"));
    CHECK(outcomes.ranks[0].message.find("frame") == std::string::npos);
    CHECK_THAT(outcomes.rethrown.message, contains_text("frame #1")); // the caller reads all
    auto const inside = run_and_observe(2, [](LoopbackCommunicator& communicator) {
        auto parameters = model();
        parameters[0].initialise = [](std::size_t, std::span<float>) {
            throw std::runtime_error("no such file\nframe #0: open");
        };
        ZeroStage<1, Sgd> engine(communicator, parameters);
    });
    CHECK_THAT(inside.ranks[1].message, contains_text("no such file"));
    CHECK(inside.ranks[1].message.find("frame") == std::string::npos);
}

} // namespace zero::test::messages_test
