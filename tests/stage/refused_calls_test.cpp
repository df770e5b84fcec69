#include "state_model.hpp"
#include "support/catch.hpp"
#include "support/outcome.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"
#include "support/toy_model.hpp"

#include <zero/stage/gathered_parameters.hpp>
#include <zero/stage/joint_step.hpp>
#include <zero/stage/live_changes.hpp>
#include <zero/stage/offload_states.hpp>
#include <zero/stage/training_state.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

// A call that is refused changes nothing, wherever it is made, and whether one rank makes it or
// all. What follows has the bits of a training without it.

namespace zero::test::refused_calls_test {

namespace {

template <int N>
using Stage = ZeroStage<N, DynamicLossScaler>;

/// Where a call is made, as bits.
enum Point : unsigned {
    idle = 1,        ///< between steps
    accumulated = 2, ///< in a step that has a micro-step
    inside = 4,      ///< in a micro-step
    anywhere = 7
};

template <int N>
struct Refused {
    char const* name;
    unsigned points; ///< where it is refused
    std::function<void(Stage<N>&)> call;
    bool is_joint = false;      ///< only while a `JointStep` lives
    bool is_on_all = false;     ///< ranks meet in it
    bool is_unweighted = false; ///< only without weights of steps
};

template <int N>
std::vector<Refused<N>> refused_calls() {
    using S = Stage<N>;
    constexpr double infinity = std::numeric_limits<double>::infinity();
    constexpr auto huge = std::uint64_t{1} << 63U;
    static std::vector<float> const three(3, 1.0F);
    auto const state = [](S& engine) { return TrainingState<S>(engine); };
    std::vector<Refused<N>> all{
        {"begin_step", accumulated | inside, [](S& e) { e.begin_step(); }},
        {"begin_micro_step", idle | inside, [](S& e) { e.begin_micro_step(); }},
        {"end_micro_step", idle | accumulated, [](S& e) { e.end_micro_step(); }},
        {"micro_steps", idle | inside,
         [](S& e) {
             for (auto const number : e.micro_steps(2)) {
                 (void)number;
             }
         }},
        {"cancel_step", idle, [](S& e) { e.cancel_step(); }},
        {"step", idle | inside, [](S& e) { (void)e.step(0.01); }},
        {"step with an update", idle | inside,
         [](S& e) { (void)e.step(0.01, [](auto const&) {}); }},
        {"step without end", anywhere, [](S& e) { (void)e.step(infinity); }},
        {"step backwards", anywhere, [](S& e) { (void)e.step(-1.0, [](auto const&) {}); }},
        {"acquire", anywhere, [](S& e) { (void)e.acquire(99); }},
        {"gradients", idle | accumulated, [](S& e) { (void)e.gradients(0); }},
        {"gradients of no unit", anywhere, [](S& e) { (void)e.gradients(99); }},
        {"begin_gradients", idle | accumulated, [](S& e) { e.begin_gradients(0); }},
        {"gradients_ready", idle | accumulated, [](S& e) { e.gradients_ready(0); }},
        {"gradients_ready of no unit", anywhere, [](S& e) { e.gradients_ready(99); }},
        {"hand_over", idle | accumulated, [](S& e) { (void)e.hand_over(1, 2, three); }},
        {"hand_over of another size", anywhere, [](S& e) { (void)e.hand_over(1, 2, three); }},
        {"note_unused", anywhere, [](S& e) { e.note_unused(0, 5); }},
        {"gradient_norms", idle | inside, [](S& e) { (void)e.gradient_norms(); }},
        {"set_learning_rate of no group", anywhere, [](S& e) { e.set_learning_rate(9, 1.0); }},
        {"set_learning_rate", anywhere, [](S& e) { e.set_learning_rate(0, -1.0); }},
        {"set_hyper_parameters", anywhere, [](S& e) { e.set_hyper_parameters(0, {.beta1 = 2.0}); }},
        {"hyper_parameters", anywhere, [](S& e) { (void)e.hyper_parameters(9); }},
        {"set_step_count", anywhere, [](S& e) { e.set_step_count(huge); }},
        {"set_loss_scale", anywhere, [](S& e) { e.set_loss_scale(-2.0F); }},
        {"set_loss_scaler_state", anywhere,
         [](S& e) {
             auto trackers = e.loss_scaler_state();
             trackers.scale = std::nanf("");
             e.set_loss_scaler_state(trackers);
         }},
        {"for_each_full_parameter", accumulated | inside,
         [](S& e) { e.for_each_full_parameter([](auto const&...) {}); }},
        {"gather_to", anywhere,
         [](S& e) {
             std::vector<float> block(3);
             e.gather_to(block);
         }},
        {"check_memory", anywhere, [](S& e) { e.check_memory({}); }},
        {"parameters_changed", accumulated | inside, [](S& e) { e.parameters_changed(); }},
        {"full_fp32_parameter", anywhere, [=](S& e) { (void)state(e).full_fp32_parameter(99); }},
        {"full_fp32_parameter in a step", accumulated | inside,
         [=](S& e) { (void)state(e).full_fp32_parameter(0); }},
        {"set_full_fp32_parameter", accumulated | inside,
         [=](S& e) { state(e).set_full_fp32_parameter(2, three); }},
        {"set_full_fp32_parameter of another size", idle,
         [=](S& e) { state(e).set_full_fp32_parameter(2, three); }, false, true},
        {"set_local_fp32_parameter", anywhere,
         [=](S& e) { state(e).set_local_fp32_parameter(2, 5, three); }},
        {"full_optimizer_state", anywhere,
         [=](S& e) { (void)state(e).full_optimizer_state(0, "nonsense"); }},
        {"full_optimizer_state of a frozen one", anywhere,
         [=](S& e) { (void)state(e).full_optimizer_state(4, "exp_avg"); }},
        {"set_full_optimizer_state", idle,
         [=](S& e) {
             state(e).set_full_optimizer_state(2, "exp_avg_sq", std::vector<float>(7, -1.0F));
         },
         false, true},
        {"set_updates", anywhere, [=](S& e) { state(e).set_updates(0, huge); }},
        {"set_running_norm", anywhere, [=](S& e) { state(e).set_running_norm({.mean = -1.0}); }},
        {"publish_master_weights", accumulated | inside,
         [=](S& e) { state(e).publish_master_weights(); }},
        {"full_gradient", idle | inside, [=](S& e) { (void)state(e).full_gradient(0); }},
        {"set_full_gradient", idle | inside, [=](S& e) { state(e).set_full_gradient(2, three); }},
        {"gather of nothing", anywhere, [](S& e) { (void)gather(e, {"nonsense"}); }},
        {"gather twice", anywhere,
         [](S& e) {
             (void)gather(e, {"first.bias", "first.bias"});
         }},
        {"gather to write", accumulated | inside,
         [](S& e) { (void)gather(e, {"first.bias"}, Gather::one_rank_writes); }},
        {"gather by no rank", anywhere,
         [](S& e) { (void)gather(e, {"first.bias"}, Gather::one_rank_writes, 9); }},
        {"set_trainable of nothing", anywhere, [](S& e) { set_trainable(e, {"nonsense"}, false); }},
        {"set_trainable of no group", anywhere, [](S& e) { set_trainable(e, 9, false); }},
        {"set_trainable", accumulated | inside,
         [](S& e) { set_trainable(e, {"first.bias"}, false); }},
        {"add_parameters of another unit", anywhere,
         [](S& e) { (void)add_parameters(e, {{.name = "w", .elements = 5, .units = {9}}}); }},
        {"add_parameters of another group", anywhere,
         [](S& e) { (void)add_parameters(e, {{.name = "w", .elements = 5, .group = 9}}); }},
        {"add_parameters twice", anywhere,
         [](S& e) { (void)add_parameters(e, {{.name = "first.bias", .elements = 5}}); }},
        {"remove_parameters", anywhere, [](S& e) { remove_parameters(e, {"nonsense"}); }},
        {"offload_states", accumulated | inside, [](S& e) { offload_states(e); }},
        {"JointStep of one engine twice", anywhere, [](S& e) { JointStep joint(e, e); }},
        {"step of one", accumulated, [](S& e) { (void)e.step(0.01); }, true},
        {"own step of one", accumulated, [](S& e) { (void)e.step(0.01, [](auto const&) {}); },
         true},
        {"step with a weight", accumulated, [](S& e) { (void)e.step(0.01, 3); }, false, false,
         true}};
    return all;
}

/// The refused calls of one rank at random points of a training.
template <int N>
class Calls {
public:
    Calls(std::uint64_t seed, std::size_t rank, bool is_calling, bool is_joint, bool is_weighted)
        : _own(seed + rank), _shared(seed), _is_calling(is_calling), _is_joint(is_joint),
          _is_weighted(is_weighted) {}

    void at(Point point, Stage<N>& a, Stage<N>& b) {
        make(point, a, b, _shared, true);
        if (_is_calling) {
            make(point, a, b, _own, false);
        }
    }

    std::set<std::string> made;
    std::vector<std::string> accepted; ///< calls that were not refused

private:
    void make(Point point, Stage<N>& a, Stage<N>& b, std::mt19937_64& random, bool is_on_all) {
        std::vector<Refused<N> const*> possible;
        for (Refused<N> const& call : _all) {
            if ((call.points & point) != 0 && call.is_on_all == is_on_all
                && (_is_joint || !call.is_joint) && !(_is_weighted && call.is_unweighted)) {
                possible.push_back(&call);
            }
        }
        for (std::size_t left = possible.empty() ? 0 : random() % 4; left > 0; --left) {
            Refused<N> const& call = *possible[random() % possible.size()];
            Stage<N>& engine = random() % 2 == 0 ? a : b;
            Outcome const outcome = outcome_of([&] { call.call(engine); });
            made.insert(call.name);
            if (outcome.type != "OutOfOrder" && outcome.type != "InvalidArgument"
                && outcome.type != "LateGradient") {
                accepted.push_back(std::string(call.name) + ": " + outcome.type + " "
                                   + outcome.message);
            }
        }
    }

    std::vector<Refused<N>> _all = refused_calls<N>();
    std::mt19937_64 _own, _shared;
    bool _is_calling, _is_joint, _is_weighted;
};

struct Seen {
    state_model::Bits bits{};
    std::set<std::string> made{};
    std::vector<std::string> accepted{};
};

/// Trains two engines for three steps. @param calling the rank that makes calls alone; -1: none
template <int N>
Seen train(LoopbackCommunicator& communicator, std::uint64_t seed, bool is_refused, int calling) {
    std::mt19937_64 random(seed);
    auto const one_of = [&](auto... values) {
        std::common_type_t<decltype(values)...> const all[]{values...};
        return all[random() % sizeof...(values)];
    };
    auto const rank = static_cast<std::size_t>(communicator.rank());
    typename Stage<N>::Options options{
        .poison = true, .loss_scaler = {.initial_scale = 8.0F, .growth_interval = 2}};
    options.reduction.schedule =
        one_of(ReductionSchedule::boundary, ReductionSchedule::every_micro_step);
    options.reduction.kind = one_of(ReductionKind::mean, ReductionKind::sum);
    options.unused_parameters = one_of(UnusedParameters::zero, UnusedParameters::leave);
    options.gather.keep_after_forward = one_of(0U, 2U);
    if (one_of(false, true)) {
        options.gradient_clipping = 1.0F;
        options.skip_above_norm.factor = 1e6F;
    }
    bool const is_joint = one_of(false, true);
    bool const is_weighted = !is_joint && one_of(false, true);
    std::optional<std::int64_t> weight;
    if (is_weighted) {
        options.reduction.kind = ReductionKind::weighted_mean;
        weight = static_cast<std::int64_t>(rank) + 1;
    }
    Stage<N> a(communicator, registration<float>(toy_specs()), options);
    Stage<N> b(communicator, registration<float>(toy_specs()), options);
    using Config = zero::detail::config_of_t<Stage<N>>;
    std::optional<JointStep<Config, Config>> joint;
    if (is_joint) {
        joint.emplace(a, b);
    }
    Calls<N> calls(is_refused ? seed : 0, rank, communicator.rank() == calling, is_joint,
                   is_weighted);
    auto const at = [&](Point point) {
        if (is_refused) {
            calls.at(point, a, b);
        }
    };
    for (std::uint64_t step = 0; step < 3; ++step) {
        at(idle);
        if (joint) {
            joint->begin_step();
        } else {
            a.begin_step();
            b.begin_step();
        }
        for (std::uint64_t micro_step = 0; micro_step < 2; ++micro_step) {
            for (Stage<N>* engine : {&a, &b}) {
                engine->begin_micro_step();
            }
            at(inside);
            for (Stage<N>* engine : {&a, &b}) {
                run_micro_step(*engine, rank, step, micro_step, engine->loss_scale());
            }
            at(inside);
            for (Stage<N>* engine : {&a, &b}) {
                engine->end_micro_step();
            }
            at(accumulated);
        }
        if (joint) {
            joint->step(0.01);
        } else {
            (void)a.step(0.01, weight);
            (void)b.step(0.01, weight);
        }
    }
    at(idle);
    Seen seen{state_model::state_of(a), calls.made, calls.accepted};
    auto const other = state_model::state_of(b);
    seen.bits.insert(seen.bits.end(), other.begin(), other.end());
    return seen;
}

} // namespace

TEST_CASE("A refused call of one rank, or of all, at any point changes no bit of what follows") {
    std::set<std::string> made;
    in_every_stage([&]<int N>() {
        for (int const world : {2, 3}) {
            for (std::uint64_t seed = 1; seed <= 30; ++seed) {
                INFO("seed " << seed << ", " << world << " ranks");
                int const calling = static_cast<int>(seed % static_cast<unsigned>(world));
                auto const run = [&](bool is_refused) {
                    return on_ranks<Seen>(world, [&](LoopbackCommunicator& communicator) {
                        return train<N>(communicator, seed, is_refused, calling);
                    });
                };
                auto const expected = run(false);
                auto const found = run(true);
                for (std::size_t rank = 0; rank < found.size(); ++rank) {
                    CHECK(found[rank].accepted == std::vector<std::string>());
                    CHECK((found[rank].bits == expected[rank].bits));
                    made.insert(found[rank].made.begin(), found[rank].made.end());
                }
            }
        }
    });
    for (auto const& call : refused_calls<2>()) {
        INFO(call.name);
        CHECK(made.contains(call.name));
    }
}

} // namespace zero::test::refused_calls_test
