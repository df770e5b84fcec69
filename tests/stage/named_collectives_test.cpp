#include "state_model.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"
#include "support/untagged.hpp"

#include <zero/comm/checked.hpp>
#include <zero/comm/hierarchical.hpp>
#include <zero/comm/sum_over_ranks.hpp>
#include <zero/stage/gathered_parameters.hpp>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

// Collectives between steps say which array they move, so ranks that mean different ones get an
// error, also by transports that compare no tags.

namespace zero::test::named_collectives_test {

namespace {

using namespace state_model;

constexpr std::size_t weight = 1; // of the toy model, 500 elements

static_assert(LoopbackCommunicator::compares_calls && Checked<Untagged>::compares_calls);
static_assert(!Hierarchical<LoopbackCommunicator, Untagged>::compares_calls);
static_assert(!zero::detail::compares_calls<Untagged>);

/// The objects that one rank calls.
template <class Stage, class Communicator>
struct Caller {
    Communicator& communicator;
    Stage& engine;
    TrainingState<typename Stage::EngineType>& state;
};

/// Runs `call(caller, rank)` on the ranks of an engine over `Communicator`; with gradients, between
/// the last micro-step and `step`.
template <int N, class Communicator, class Call>
std::vector<Outcome> run_as(int world, bool has_gradients, Call const& call) {
    using Stage = ZeroStage<N, Parameters<bfloat16>, Communicator>;
    return run_and_observe(world,
                           [&](LoopbackCommunicator& loopback) {
                               Communicator communicator(loopback);
                               Toy<Stage> toy(communicator);
                               TrainingState state(*toy.engine);
                               if (has_gradients) {
                                   toy.engine->begin_step();
                                   toy.engine->begin_micro_step(MicroStep::last);
                                   toy.engine->end_micro_step();
                               }
                               Caller<Stage, Communicator> caller{communicator, *toy.engine, state};
                               call(caller, loopback.rank());
                           })
        .ranks;
}

/// The same for `call(engine, state, is_first)` on two ranks.
template <int N, class Communicator, class Call>
std::vector<Outcome> run(bool has_gradients, Call const& call) {
    return run_as<N, Communicator>(2, has_gradients, [&](auto& caller, int rank) {
        call(caller.engine, caller.state, rank == 0);
    });
}

/// Checks that both ranks get a mismatch that holds both texts.
void check_told(std::vector<Outcome> const& ranks, std::string const& first,
                std::string const& second) {
    for (Outcome const& outcome : ranks) {
        CHECK(outcome.type == "CollectiveMismatch");
        CHECK_THAT(outcome.message, contains_text(first) && contains_text(second));
    }
}

/// Checks every pair of calls, in one stage over one transport.
template <int N, class Communicator>
void check_pairs() {
    auto const between = [](auto const& call) { return run<N, Communicator>(false, call); };
    std::vector<float> const values(500, 2.0F);
    check_told(between([](auto&, auto& state, bool is_first) {
                   (void)state.full_optimizer_state(weight, is_first ? "exp_avg_sq" : "exp_avg");
               }),
               "state 1", "state 0");
    check_told(between([](auto&, auto& state, bool is_first) {
                   (void)(is_first ? state.full_optimizer_state(weight, "exp_avg_sq")
                                   : state.full_fp32_parameter(weight));
               }),
               "for 'exp_avg_sq'", "'values of parameter 1'");
    check_told(between([&](auto&, auto& state, bool is_first) {
                   state.set_full_optimizer_state(weight, is_first ? "exp_avg" : "exp_avg_sq",
                                                  values);
               }),
               "for 'exp_avg'", "for 'exp_avg_sq'");
    check_told(between([&](auto&, auto& state, bool is_first) {
                   is_first ? state.set_full_optimizer_state(weight, "exp_avg", values)
                            : state.set_full_fp32_parameter(weight, values);
               }),
               "state 0: values to set", "'values to set");
    check_told(run<N, Communicator>(true,
                                    [&](auto&, auto& state, bool is_first) {
                                        state.set_full_gradient(weight, values,
                                                                is_first ? GradientForm::scaled
                                                                         : GradientForm::unscaled);
                                    }),
               "'scaled gradient: values to set", "'unscaled gradient: values to set");
    check_told(between([](auto& engine, auto& state, bool is_first) {
                   is_first ? engine.parameters_changed() : state.publish_master_weights();
               }),
               "'parameters_changed()", "'publish_master_weights()");
    check_told(between([](auto&, auto& state, bool is_first) {
                   if (is_first) {
                       state.refresh_master_weights();
                   }
                   (void)state.full_fp32_parameter(0);
               }),
               "'parameters_changed()", "'values of parameter 0'");
    check_told(between([](auto&, auto& state, bool is_first) {
                   if (is_first) {
                       state.publish_master_weights();
                   }
                   (void)state.full_fp32_parameter(0);
               }),
               "'publish_master_weights()", "'values of parameter 0'");
}

/// A collective call, and what a message about it holds.
template <class Stage>
struct Call {
    std::string text;
    std::function<void(Caller<Stage, Untagged>&)> run;
};

/// @param sends_parameters whether a visit of all parameters sends anything
template <class Stage>
std::vector<Call<Stage>> calls_between_steps(bool sends_parameters) {
    using C = Caller<Stage, Untagged>;
    std::vector<float> const values(500, 2.0F);
    std::vector<Call<Stage>> calls{
        {"'values of parameter 0'", [](C& c) { (void)c.state.full_fp32_parameter(0); }},
        {"'values of parameter 1'", [](C& c) { (void)c.state.full_fp32_parameter(1); }},
        {"'values to set", [=](C& c) { c.state.set_full_fp32_parameter(weight, values); }},
        {"'state 0: values of",
         [](C& c) { (void)c.state.full_optimizer_state(weight, "exp_avg"); }},
        {"'state 1: values of",
         [](C& c) { (void)c.state.full_optimizer_state(weight, "exp_avg_sq"); }},
        {"'state 0: values to set",
         [=](C& c) { c.state.set_full_optimizer_state(weight, "exp_avg", values); }},
        {"'state 1: values to set",
         [=](C& c) { c.state.set_full_optimizer_state(weight, "exp_avg_sq", values); }},
        {"'publish_master_weights()", [](C& c) { c.state.publish_master_weights(); }},
        {"'parameters_changed()", [](C& c) { c.state.refresh_master_weights(); }},
        {"'parameters to gather", [](C& c) { (void)gather(c.engine, {"first.weight"}); }},
        {"'sum_over_ranks(), sum", [](C& c) { (void)sum_over_ranks(c.communicator, 1.0); }},
        {"'layout hash", [](C& c) { Toy<Stage> const other(c.communicator); }}};
    if (sends_parameters) {
        calls.push_back({"'for_each_full_parameter()",
                         [](C& c) { c.engine.for_each_full_parameter([](std::size_t, auto) {}); }});
        calls.push_back({"'gather_to()", [](C& c) { c.engine.gather_to({}); }});
    }
    return calls;
}

template <class Stage>
std::vector<Call<Stage>> calls_before_step() {
    using C = Caller<Stage, Untagged>;
    std::vector<float> const values(500, 2.0F);
    auto const norms = [](NormKind kind, NormScope scope) {
        return [=](C& c) { (void)c.engine.gradient_norms(kind, scope); };
    };
    return {
        {"'gradient: values of parameter 0'", [](C& c) { (void)c.state.full_gradient(0); }},
        {"'gradient: values of parameter 1'", [](C& c) { (void)c.state.full_gradient(weight); }},
        {"'scaled gradient: values to set",
         [=](C& c) { c.state.set_full_gradient(weight, values, GradientForm::scaled); }},
        {"'unscaled gradient: values to set",
         [=](C& c) { c.state.set_full_gradient(weight, values); }},
        {"'gradient norms, kind and scope", norms(NormKind::l2, NormScope::global)},
        {"'gradient norms, kind and scope", norms(NormKind::l2, NormScope::groups)},
        {"'gradient norms, kind and scope", norms(NormKind::infinity, NormScope::groups)},
        {"'sum_over_ranks(), sum", [](C& c) { (void)sum_over_ranks(c.communicator, 1.0); }}};
}

/// Lets one of two or three ranks make another call than the others, for every pair of calls.
template <int N>
void check_every_pair(bool has_gradients) {
    using Stage = ZeroStage<N, Parameters<bfloat16>, Untagged>;
    auto const calls =
        has_gradients ? calls_before_step<Stage>() : calls_between_steps<Stage>(N == 3);
    for (int const world : {2, 3}) {
        for (std::size_t one = 0; one < calls.size(); ++one) {
            for (std::size_t other = 0; other < calls.size(); ++other) {
                if (one == other) {
                    continue;
                }
                int const alone = static_cast<int>(one + other) % world;
                auto const ranks =
                    run_as<N, Untagged>(world, has_gradients, [&](auto& c, int rank) {
                        calls[rank == alone ? one : other].run(c);
                    });
                INFO("rank " << alone << " of " << world << " calls " << calls[one].text);
                check_told(ranks, calls[one].text, calls[other].text);
            }
        }
    }
}

} // namespace

TEST_CASE("Over a transport without tags, ranks that make different calls between steps are told "
          "both") {
    in_every_stage([]<int N>() {
        check_every_pair<N>(false);
        check_every_pair<N>(true);
    });
}

TEST_CASE("Ranks that read or set different arrays, or publish and refresh, get a "
          "CollectiveMismatch that names both") {
    in_every_stage([]<int N>() { check_pairs<N, Untagged>(); });
    check_pairs<0, Checked<LoopbackCommunicator>>();
    check_pairs<3, Checked<LoopbackCommunicator>>();
}

TEST_CASE("A rank that alone refreshes its master weights before a step is told") {
    in_every_stage([]<int N>() {
        for (Outcome const &outcome :
             run<N, Checked<LoopbackCommunicator>>(false, [](auto& engine, auto&, bool is_first) {
                 if (is_first) {
                     engine.parameters_changed();
                 }
                 (void)run_step(engine, 0, 0).report();
             })) {
            CHECK(outcome.type == "CollectiveMismatch");
            CHECK_THAT(outcome.message, contains_text("'parameters_changed()"));
        }
    });
}

TEST_CASE("In stages 0 to 2 one rank may visit all parameters alone") {
    auto const check = []<int N>() {
        for (Outcome const &outcome :
             run<N, Checked<LoopbackCommunicator>>(false, [](auto& engine, auto&, bool is_first) {
                 if (is_first) {
                     engine.for_each_full_parameter([](std::size_t, auto) {});
                     engine.gather_to({});
                 }
                 (void)run_step(engine, 0, 0).report();
             })) {
            CHECK(outcome.type == "returned");
        }
    };
    check.template operator()<0>();
    check.template operator()<1>();
    check.template operator()<2>();
}

TEST_CASE("Over a transport without tags, equal calls return what the loopback returns") {
    auto const states = []<class Communicator>(Communicator*) {
        return on_ranks<std::vector<float>>(2, [](LoopbackCommunicator& loopback) {
            using Stage = ZeroStage<2, Parameters<bfloat16>, Communicator>;
            Communicator communicator(loopback);
            Toy<Stage> toy(communicator);
            (void)run_step(*toy.engine, static_cast<std::uint64_t>(loopback.rank()), 0).report();
            TrainingState state(*toy.engine);
            state.set_full_optimizer_state(0, "exp_avg", some_values(Exact::every_float, 3, 0));
            state.publish_master_weights();
            std::vector<float> all = state.full_fp32_parameter(weight);
            for (std::string const& name : state.state_names()) {
                for (std::size_t const parameter : {std::size_t{0}, weight}) {
                    auto const values = state.full_optimizer_state(parameter, name);
                    all.insert(all.end(), values.begin(), values.end());
                }
            }
            return all;
        });
    };
    auto const untagged = states(static_cast<Untagged*>(nullptr));
    CHECK(untagged == states(static_cast<Checked<LoopbackCommunicator>*>(nullptr)));
    CHECK(untagged[0] == untagged[1]);
    CHECK(untagged[0].size() == 500 + 2 * (300 + 500));
}

} // namespace zero::test::named_collectives_test
