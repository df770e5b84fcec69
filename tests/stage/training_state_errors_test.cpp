#include "state_model.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/snapshot.hpp"
#include "support/stages.hpp"

#include <functional>
#include <string>
#include <vector>

// Wrong arguments change nothing, and calls that differ between ranks end on each of them.

namespace zero::test::training_state_errors_test {

namespace {

using namespace state_model;
using Stage = ZeroStage<2>;
using State = TrainingState<Stage::EngineType>;
using Call = std::function<void(Stage&, State&)>;

constexpr std::size_t weight = 1; // parameters of the toy model
constexpr std::size_t frozen = 4;
constexpr std::size_t empty = 6;

/// Runs one call on rank 0 and another on rank 1.
std::vector<Outcome> differing(Call const& first, Call const& second) {
    return run_and_observe(2,
                           [&](LoopbackCommunicator& communicator) {
                               Toy<Stage> toy(communicator);
                               State state(*toy.engine);
                               (communicator.rank() == 0 ? first : second)(*toy.engine, state);
                           })
        .ranks;
}

void take_step(Stage& engine, State& /*state*/) {
    (void)run_step(engine, 0, 0).report();
}

void set_weights(Stage& /*engine*/, State& state) {
    state.set_full_fp32_parameter(weight, std::vector<float>(500));
}

} // namespace

TEST_CASE("A collective call on one rank, and another one on the other, is a CollectiveMismatch on "
          "both") {
    auto const set_empty = [](Stage&, State& state) { state.set_full_fp32_parameter(empty, {}); };
    auto const set_state = [](Stage&, State& state) {
        state.set_full_optimizer_state(weight, "exp_avg", std::vector<float>(500));
    };
    auto const get = [](Stage&, State& state) { (void)state.full_fp32_parameter(weight); };
    auto const get_other = [](Stage&, State& state) { (void)state.full_fp32_parameter(0); };
    auto const publish = [](Stage&, State& state) { state.publish_master_weights(); };
    for (auto const& [first, second] : std::vector<std::pair<Call, Call>>{{set_weights, get},
                                                                          {take_step, set_weights},
                                                                          {set_empty, take_step},
                                                                          {get, set_empty},
                                                                          {set_state, publish},
                                                                          {get, get_other},
                                                                          {take_step, get}}) {
        for (Outcome const& outcome : differing(first, second)) {
            CHECK(outcome.type == "CollectiveMismatch");
        }
    }
    auto const named = differing(set_weights, get);
    CHECK_THAT(named[0].message,
               contains_text("values to set") && contains_text("values of parameter"));
}

TEST_CASE("Setters of two parameters are refused on both ranks, and the engine goes on") {
    auto const ranks = on_ranks<Outcome>(2, [](LoopbackCommunicator& communicator) {
        Toy<Stage> toy(communicator);
        State state(*toy.engine);
        auto const outcome = outcome_of(
            [&] { state.set_full_fp32_parameter(communicator.rank() == 0 ? weight : frozen, {}); });
        take_step(*toy.engine, state);
        return outcome;
    });
    for (Outcome const& outcome : ranks) {
        CHECK(outcome.type == "InvalidArgument");
    }
    std::string const remedy = "); pass the same parameter on every rank. Nothing was changed.";
    CHECK(ranks[0].message
          == "zero: rank 1 sets parameter number 4, rank 0 sets 'first.weight' (number 1" + remedy);
    CHECK(ranks[1].message
          == "zero: rank 0 sets parameter number 1, rank 1 sets 'second.table' (number 4" + remedy);
}

TEST_CASE("A wrong length on rank 0 is InvalidArgument on every rank and changes nothing") {
    in_every_stage([]<int N>() {
        struct Seen {
            std::vector<Outcome> outcomes;
            std::vector<std::uint32_t> before;
            std::vector<std::uint32_t> after;
            std::vector<float> set;
        };
        auto const ranks = on_ranks<Seen>(2, [](LoopbackCommunicator& communicator) {
            Toy<ZeroStage<N>> toy(communicator);
            auto& engine = *toy.engine;
            TrainingState state(engine);
            auto const values = [&](std::size_t size) {
                return std::vector<float>(communicator.rank() == 0 ? size : 0, 5.0F);
            };
            Seen seen;
            seen.before = snapshot(engine);
            for (std::size_t const size : {0U, 499U, 501U}) {
                seen.outcomes.push_back(
                    outcome_of([&] { state.set_full_fp32_parameter(weight, values(size)); }));
                seen.outcomes.push_back(outcome_of(
                    [&] { state.set_full_optimizer_state(weight, "exp_avg", values(size)); }));
            }
            seen.after = snapshot(engine);
            state.set_full_fp32_parameter(weight, values(500));
            (void)run_step(engine, 0, 0).report();
            seen.set = state.full_fp32_parameter(weight);
            return seen;
        });
        for (Seen const& seen : ranks) {
            for (Outcome const& outcome : seen.outcomes) {
                CHECK(outcome.type == "InvalidArgument");
                CHECK_THAT(outcome.message, contains_text("'first.weight' (number 1), which has "
                                                          "500 elements"));
            }
            // one of 499 values, in which no rank is named twice
            CHECK(seen.outcomes[2].message
                  == "zero: rank 0 sets 499 values of parameter 'first.weight' (number 1), which "
                     "has 500 elements; pass all values on rank 0, and as many or none on the "
                     "others. Nothing was changed.");
            CHECK((seen.after == seen.before));
            CHECK(seen.set[3] == Approx(5.0F).margin(0.02)); // one step of 0.01 further
        }
    });
}

TEST_CASE("Unknown names, frozen and missing parameters and slices of other ranks are refused") {
    run_ranks(1, [](LoopbackCommunicator& communicator) {
        Toy<Stage> toy(communicator);
        State state(*toy.engine);
        auto const before = snapshot(*toy.engine);
        std::vector<float> const values(500);
        CHECK_THROWS_WITH(
            state.full_optimizer_state(weight, "momentum"),
            contains_text("no state 'momentum'; its states are 'exp_avg', 'exp_avg_sq'"));
        CHECK_THROWS_AS(state.set_full_optimizer_state(weight, "", values), InvalidArgument);
        CHECK_THROWS_AS(state.local_optimizer_state(weight, "exp"), InvalidArgument);
        CHECK_THROWS_WITH(state.full_optimizer_state(frozen, "exp_avg"),
                          contains_text("'second.table' is frozen and has no optimizer state"));
        CHECK_THROWS_WITH(state.full_fp32_parameter(8),
                          contains_text("parameter 8 does not exist; the model has 8"));
        CHECK_THROWS_AS(state.local_optimizer_state(8, "exp_avg"), InvalidArgument);
        CHECK_THROWS_AS(state.set_local_fp32_parameter(weight, 1, values), InvalidArgument);
        CHECK_THROWS_WITH(
            state.set_local_optimizer_state(weight, "exp_avg", 0,
                                            std::span<float const>(values).first(499)),
            contains_text("holds no slice of 499 elements at 0 of parameter 'first.weight'"));
        CHECK((snapshot(*toy.engine) == before));
    });
}

TEST_CASE("Full values are read and set between steps, and set with no handle held") {
    in_every_stage([]<int N>() {
        run_ranks(1, [](LoopbackCommunicator& communicator) {
            Toy<ZeroStage<N>> toy(communicator);
            auto& engine = *toy.engine;
            TrainingState state(engine);
            std::vector<float> const values(500);
            {
                auto const held = engine.acquire(1);
                CHECK_THROWS_AS(state.set_full_fp32_parameter(weight, values), OutOfOrder);
                CHECK_THROWS_WITH(state.publish_master_weights(),
                                  contains_text("publish_master_weights()"));
                CHECK(state.full_fp32_parameter(weight)[2] == noise(1, 1, 2));
            }
            engine.begin_step();
            CHECK_THROWS_AS(state.full_fp32_parameter(weight), OutOfOrder);
            CHECK_THROWS_AS(state.full_optimizer_state(weight, "exp_avg"), OutOfOrder);
            CHECK_THROWS_WITH(state.set_full_optimizer_state(weight, "exp_avg", values),
                              contains_text("set_full_optimizer_state() inside a step"));
            CHECK_THROWS_AS(state.set_full_fp32_parameter(weight, values), OutOfOrder);
            CHECK_THROWS_AS(state.set_local_fp32_parameter(weight, 0, values), OutOfOrder);
            CHECK_THROWS_WITH(state.set_local_optimizer_state(weight, "exp_avg", 0, values),
                              contains_text("set_local_optimizer_state() inside a step"));
            CHECK_THROWS_AS(state.publish_master_weights(), OutOfOrder);
            CHECK_THROWS_AS(engine.set_step_count(3), OutOfOrder);
            engine.cancel_step();
            CHECK_NOTHROW(state.set_full_fp32_parameter(weight, values));
            CHECK_NOTHROW(state.set_local_optimizer_state(weight, "exp_avg", 0, values));
        });
    });
}

} // namespace zero::test::training_state_errors_test
