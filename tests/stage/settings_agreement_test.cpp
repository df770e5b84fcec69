#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"
#include "support/toy_model.hpp"

#include <zero/core/host_memory_resource.hpp>
#include <zero/stage/gathered_parameters.hpp>
#include <zero/stage/joint_step.hpp>
#include <zero/stage/live_changes.hpp>
#include <zero/stage/training_state.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

// Differences between ranks that the sequence of collectives does not reveal. Without these checks
// replicas would drift apart silently.

namespace zero::test::settings_agreement_test {

namespace {

template <int N>
using Engine = ZeroStage<N, DynamicLossScaler>;

/// Rank 1 alone calls `differ(engine)` before the second step. The micro-steps and the learning
/// rate of that step are `count_of(rank)` and `rate_of(rank)`.
/// @return the message of the CollectiveMismatch on every rank, or "agreed" if none was thrown
template <int N>
std::string text_of(GradientReductionOptions const& reduction,
                    std::function<void(Engine<N>&)> const& differ, std::size_t count_of_rank_1 = 2,
                    double rate_of_rank_1 = 0.01) {
    auto const outcomes = run_and_observe(2, [&](LoopbackCommunicator& communicator) {
        auto const rank = static_cast<std::uint64_t>(communicator.rank());
        Engine<N> engine(communicator, registration<float>(toy_specs()), {.reduction = reduction});
        bool const is_weighted = reduction.kind == ReductionKind::weighted_mean;
        for (std::uint64_t step = 0; step < 3; ++step) {
            bool const differs = rank == 1 && step == 1;
            if (differs) {
                differ(engine);
            }
            engine.begin_step();
            float const scale = engine.loss_scale();
            for (auto const micro_step : engine.micro_steps(differs ? count_of_rank_1 : 2)) {
                run_micro_step(engine, rank, step, micro_step, scale);
            }
            double const rate = differs ? rate_of_rank_1 : 0.01;
            (void)(is_weighted ? engine.step(rate, 3) : engine.step(rate)).report();
        }
    });
    for (Outcome const& outcome : outcomes.ranks) {
        CHECK(outcome.type == outcomes.ranks[0].type);
        CHECK(outcome.message == outcomes.ranks[0].message);
    }
    return outcomes.ranks[0].type == "returned" ? "agreed" : outcomes.ranks[0].message;
}

template <class T>
void nothing(T&) {}

} // namespace

TEST_CASE(
    "A rank with another number of micro-steps gives a mismatch where the mean divides by it") {
    in_every_stage([]<int N>() {
        auto const none = nothing<Engine<N>>;
        auto const boundary = ReductionSchedule::boundary;
        CHECK((text_of<N>({.schedule = boundary}, none)) == "agreed");
        if (N == 3) { // in stage 3 the gathers differ before the norm is reduced
            CHECK_THAT((text_of<N>({.schedule = boundary}, none, 3)),
                       contains_text("'parameters of bucket 2'"));
            return;
        }
        CHECK_THAT((text_of<N>({.schedule = boundary}, none, 3)),
                   contains_text(" after 2 micro-steps, steps and settings")
                       && contains_text(" after 3 micro-steps, steps and settings"));
        CHECK((text_of<N>({.kind = ReductionKind::sum, .schedule = boundary}, none, 3))
              == "agreed");
        CHECK((text_of<N>({.kind = ReductionKind::mean_over_ranks, .schedule = boundary}, none, 3))
              == "agreed");
        CHECK((text_of<N>({.kind = ReductionKind::weighted_mean, .schedule = boundary}, none, 3))
              == "agreed");
    });
}

TEST_CASE("A rank with another learning rate, other settings or an extra step gives a mismatch") {
    in_every_stage([]<int N>() {
        auto const differs = contains_text(", steps and settings as hash ");
        auto const none = nothing<Engine<N>>;
        CHECK_THAT((text_of<N>({}, none, 2, 0.02)), differs);
        CHECK_THAT((text_of<N>({}, [](Engine<N>& engine) { engine.set_learning_rate(1, 0.5); })),
                   differs);
        CHECK_THAT(
            (text_of<N>({},
                        [](Engine<N>& engine) { engine.set_hyper_parameters(0, {.beta1 = 0.8}); })),
            differs);
        CHECK_THAT((text_of<N>({}, [](Engine<N>& engine) { engine.set_loss_scale(1024.0F); })),
                   differs);
        CHECK_THAT((text_of<N>({},
                               [](Engine<N>& engine) {
                                   auto state = engine.loss_scaler_state();
                                   state.scale = 512.0F;
                                   engine.set_loss_scaler_state(state);
                               })),
                   differs);
        CHECK_THAT((text_of<N>({},
                               [](Engine<N>& engine) {
                                   engine.begin_step();
                                   engine.cancel_step();
                               })),
                   differs);
    });
}

TEST_CASE("A learning rate factor of 0 on one rank gives a mismatch, and -0 is the same as 0") {
    auto const differs = contains_text("steps and settings as hash ");
    CHECK_THAT((text_of<2>({}, [](Engine<2>& engine) { engine.set_learning_rate(1, 0.0); })),
               differs);
    auto const outcomes = run_and_observe(2, [&](LoopbackCommunicator& communicator) {
        double const zero = communicator.rank() == 0 ? 0.0 : -0.0;
        ZeroStage<2> engine(communicator, registration<float>(toy_specs()),
                            {.groups = {{}, {.learning_rate_factor = zero}}});
        engine.set_learning_rate(0, zero);
        if (run_step(engine, 0, 0, 1, zero).report().is_skipped) {
            throw std::logic_error("the step was skipped");
        }
    });
    CHECK(outcomes.ranks[0] == Outcome{});
    CHECK(outcomes.ranks[1] == Outcome{});
}

TEST_CASE("Settings are compared in steps that inspect nothing") {
    in_every_stage([]<int N>() {
        using Plain = ZeroStage<N>;
        auto const outcome_of = [](ReductionKind kind, double rate_of_rank_1, auto const& differ) {
            return run_and_observe(2, [&](LoopbackCommunicator& communicator) {
                auto const rank = static_cast<std::uint64_t>(communicator.rank());
                Plain engine(communicator, registration<float>(toy_specs()),
                             {.non_finite = NonFinite::step, .reduction = {.kind = kind}});
                if (rank == 1) {
                    differ(engine);
                }
                engine.begin_step();
                for (auto const micro_step : engine.micro_steps(1)) {
                    run_micro_step(engine, rank, 0, micro_step);
                }
                double const rate = rank == 1 ? rate_of_rank_1 : 1.0;
                auto const report = (kind == ReductionKind::weighted_mean ? engine.step(rate, 3)
                                                                          : engine.step(rate))
                                        .report();
                if (report.has_norm) {
                    throw std::logic_error("the step inspected its gradients");
                }
            });
        };
        auto const none = nothing<Plain>;
        auto const differs = contains_text("steps and settings as hash ");
        for (auto const kind : {ReductionKind::mean, ReductionKind::weighted_mean}) {
            CHECK(outcome_of(kind, 1.0, none).rethrown == Outcome{});
            auto const rates = outcome_of(kind, 2.0, none);
            auto const factors =
                outcome_of(kind, 1.0, [](Plain& engine) { engine.set_learning_rate(0, 0.5); });
            for (std::size_t rank = 0; rank < 2; ++rank) {
                CHECK(rates.ranks[rank].type == "CollectiveMismatch");
                CHECK_THAT(rates.ranks[rank].message, differs);
                CHECK(factors.ranks[rank].type == "CollectiveMismatch");
                CHECK_THAT(factors.ranks[rank].message, differs);
            }
        }
    });
}

namespace {

/// How a rank runs its program, and what it may choose alone.
template <int N>
struct Run {
    using Stage = Engine<N>;

    typename Stage::Options options{.skip_above_norm = {.factor = 1e6F, .window = 4},
                                    .loss_scaler = {.initial_scale = 8.0F, .growth_interval = 100},
                                    .reduction = {.schedule = ReductionSchedule::every_micro_step}};
    std::size_t micro_steps = 2;
    double rate = 0.01;
    std::optional<std::int64_t> weight{};
    std::vector<std::size_t> order{}; ///< of the units in the backward pass
    bool announces = false, hands_over = false, updates_itself = false;
    std::function<void(Stage&)> before{};   ///< before the first step
    std::function<void(Stage&)> measures{}; ///< before a step ends
    std::string engines = "a";              ///< which make steps, in this order
    std::string passes = "abc";             ///< the order of their micro-steps
    std::function<void(Stage&)> each{};     ///< called for 'a' and 'b', before the first step
    std::function<void(Stage&)> inside{};   ///< the same before steps end
    std::string calls = "ab";               ///< the order of these calls
    std::size_t joined = 0;                 ///< how many of them in a JointStep
    bool is_apart = false;                  ///< 'b' is on another communicator
    bool ends_joint = false;                ///< makes a JointStep, and ends it before the steps
};

/// A micro-step as the rank chose it.
template <int N>
void pass(Engine<N>& engine, Run<N> const& run, std::uint64_t rank, std::uint64_t step,
          std::size_t micro_step) {
    float const scale = engine.loss_scale();
    if (!run.hands_over) {
        run_micro_step(engine, rank, step, micro_step, scale, 0, run.order);
        return;
    }
    for (std::size_t unit = 0; unit < engine.layout().units(); ++unit) {
        auto const weights = engine.acquire(unit);
    }
    for (std::size_t unit = engine.layout().units(); unit-- > 0;) {
        auto const weights = engine.acquire(unit);
        for (std::size_t const parameter : engine.layout().unit_parameters(unit)) {
            auto const& spec = engine.layout().parameter(parameter);
            if (spec.trainable) {
                std::vector<float> gradient(spec.elements);
                for (std::size_t i = 0; i < gradient.size(); ++i) {
                    gradient[i] =
                        scale * noise(2 + rank * 100 + unit, parameter, i, step * 16 + micro_step);
                }
                HostBackend::synchronise(engine.hand_over(unit, parameter, gradient));
            }
        }
        engine.gradients_ready(unit);
    }
}

/// Trains two steps of some of three engines whose parameters have the same names.
template <int N>
std::vector<std::vector<float>> train(LoopbackCommunicator& communicator, Run<N> const& run) {
    auto const rank = static_cast<std::uint64_t>(communicator.rank());
    auto second = communicator.split(0, communicator.rank());
    auto const make = [&](bool is_apart) {
        return Engine<N>(is_apart ? second : communicator, registration<float>(toy_specs()),
                         run.options);
    };
    Engine<N> a = make(false), b = make(run.is_apart), c = make(false);
    auto const engine_of = [&](char name) -> Engine<N>& {
        return name == 'a' ? a : name == 'b' ? b : c;
    };
    auto const micro_steps = [&](std::uint64_t step) {
        for (char const name : run.passes) {
            if (run.engines.find(name) == std::string::npos) {
                continue;
            }
            Engine<N>& engine = engine_of(name);
            for (std::size_t number = 0; number < run.micro_steps; ++number) {
                bool const is_last = run.announces && number + 1 == run.micro_steps;
                engine.begin_micro_step(is_last ? MicroStep::last : MicroStep::more);
                pass(engine, run, rank, step, number);
                engine.end_micro_step();
            }
            if (run.measures) {
                run.measures(engine);
            }
        }
    };
    auto const call = [&](auto const& function) {
        for (char const name : function ? run.calls : std::string()) {
            function(engine_of(name));
        }
    };
    auto const make_steps = [&](auto const& step_joint) {
        for (std::uint64_t const step : {0U, 1U}) {
            for (char const name : run.engines) {
                engine_of(name).begin_step();
            }
            micro_steps(step);
            call(run.inside);
            step_joint();
            for (char const name : run.engines.substr(run.joined)) {
                if (run.updates_itself) {
                    auto const nothing = [](auto&&...) {};
                    (void)engine_of(name).step(run.rate, nothing, run.weight).report();
                } else {
                    (void)engine_of(name).step(run.rate, run.weight).report();
                }
            }
        }
    };
    if (run.before) {
        run.before(a);
    }
    call(run.each);
    if (run.ends_joint) {
        JointStep const joint(a, b);
    }
    if (run.joined == 3) {
        JointStep joint(a, b, c);
        make_steps([&] { joint.step(run.rate); });
    } else if (run.joined == 2) {
        JointStep joint(engine_of(run.engines[0]), engine_of(run.engines[1]));
        make_steps([&] { joint.step(run.rate); });
    } else {
        make_steps([] {});
    }
    return full_parameters(a);
}

/// Something in which ranks may differ.
template <int N>
struct Choice {
    char const* name;
    std::function<void(Run<N>&)> of_one;           ///< what one rank chooses
    std::vector<std::string> texts{};              ///< of the error; none: the bits are the same
    std::function<void(Run<N>&)> of_all = nullptr; ///< what all ranks choose before
};

template <int N>
std::vector<Choice<N>> choices() {
    using R = Run<N>;
    using E = Engine<N>;
    std::vector<Choice<N>> all;
    auto const option = [&](char const* name, char const* text, auto const& set) {
        std::vector<std::string> texts;
        if (*text != '\0') {
            texts = {"different options or policies: ", text};
        }
        all.push_back({name, [set](R& run) { set(run.options); }, texts});
    };
    option("clipping", "'gradient_clipping'", [](auto& o) { o.gradient_clipping = 1.0F; });
    option("limit", "'skip_above_norm'", [](auto& o) { o.skip_above_norm.limit = 1e6F; });
    option("factor", "'skip_above_norm'", [](auto& o) { o.skip_above_norm.factor = 1e5F; });
    option("window", "'skip_above_norm'", [](auto& o) { o.skip_above_norm.window = 5; });
    option("skip_limit", "'skip_limit'", [](auto& o) { o.skip_limit = 3; });
    option("zeros", "'report'", [](auto& o) { o.report.zero_gradients = true; });
    option("group norms", "'report'", [](auto& o) { o.report.group_norms = true; });
    option("unused", "'unused_parameters'",
           [](auto& o) { o.unused_parameters = UnusedParameters::leave; });
    option("leases", "'extra_leases'", [](auto& o) { o.extra_leases = 1; });
    option("rebuild", "'rebuild_buckets'", [](auto& o) { o.rebuild_buckets = E::in_ready_order; });
    option("prefetch", "'gather'", [](auto& o) { o.gather.prefetch_elements = 0; });
    option("persistent", "'gather'", [](auto& o) { o.gather.persistence_threshold = 8; });
    option("most persistent", "'gather'",
           [](auto& o) { o.gather.persistence_threshold = o.gather.max_persistent_elements = 9; });
    option("reuse", "'gather'", [](auto& o) { o.gather.max_reuse_distance = 900; });
    option("forward", "'gather'", [](auto& o) { o.gather.keep_after_forward = 1; });
    option("kept", "'gather'", [](auto& o) { o.gather.keep_until_update = 2000; });
    option("live", "'gather'", [](auto& o) { o.gather.max_live_elements = 90'000; });
    option("changed order", "'gather'",
           [](auto& o) { o.gather.changed_order = ChangedOrder::error; });
    option("own gathers", "'gather'", [](auto& o) { o.gather.own_communicator = true; });
    if constexpr (N < 3) {
        option("bucket", "'bucketer'", [](auto& o) { o.bucketer.bucket_bytes = 1024; });
    }
    option("scale", "'loss_scaler'", [](auto& o) { o.loss_scaler.initial_scale = 4.0F; });
    option("interval", "'loss_scaler'", [](auto& o) { o.loss_scaler.growth_interval = 2; });
    option("beta", "'optimizer'", [](auto& o) { o.optimizer.beta1 = 0.5; });
    option("groups", "'groups'", [](auto& o) { o.groups.resize(2); });
    option("kind", "'reduction'", [](auto& o) { o.reduction.kind = ReductionKind::sum; });
    option("schedule", "'reduction'",
           [](auto& o) { o.reduction.schedule = ReductionSchedule::boundary; });
    option("predivide", "'reduction'", [](auto& o) { o.reduction.predivide = 2.0F; });
    option("one", "'reduction'", [](auto& o) { o.reduction.one_micro_step = true; });
    option("wire bytes", "'reduction'", [](auto& o) { o.reduction.wire_bytes = 4096; });
    option("tiles", "", [](auto& o) { o.update_tile_elements = 64; });
    option("poison", "", [](auto& o) { o.poison = true; });
    option("unit names", "", [](auto& o) { o.unit_names = {"e", "1", "2", "3", "h"}; });
    option("backward call", "", [](auto& o) { o.backward_call = "backward()"; });
    option("on_skip", "", [](auto& o) { o.on_skip = [](std::string const&) {}; });
    option("asynchronous", "", [](auto& o) { o.asynchronous = true; });
    option("queue", "",
           [](auto& o) { o.communication_queue = HostBackend::default_compute_queue(); });
    static HostMemoryResource memory;
    option("memory", "", [](auto& o) { o.memory = &memory; });

    all.push_back({"rate", [](R& run) { run.rate = 0.02; }, {"'rate 0.02 after 2 micro-steps"}});
    all.push_back({"micro-steps",
                   [](R& run) { run.micro_steps = 3; },
                   {N == 3 ? "'parameters of bucket" : " after 3 micro-steps"},
                   [](R& run) { run.options.reduction.schedule = ReductionSchedule::boundary; }});
    auto const before = [&](char const* name, std::string const& text, auto const& call) {
        std::vector<std::string> const texts =
            text.empty() ? std::vector<std::string>() : std::vector{text};
        all.push_back({name, [call](R& run) { run.before = call; }, texts});
    };
    before("set rate", "with changed learning rates", [](E& e) { e.set_learning_rate(1, 0.5); });
    before("set options", "with changed hyper-parameters",
           [](E& e) { e.set_hyper_parameters(0, {.beta1 = 0.8}); });
    before("set scale", "with changed loss scaler", [](E& e) { e.set_loss_scale(1024.0F); });
    auto const set_clean_steps = [](R& run, std::uint32_t clean_steps) {
        run.before = [clean_steps](E& e) {
            auto state = e.loss_scaler_state();
            state.clean_steps = clean_steps; // the same scale, which will grow at another step
            e.set_loss_scaler_state(state);
        };
    };
    all.push_back({"trackers",
                   [set_clean_steps](R& run) { set_clean_steps(run, 8); },
                   {"with changed loss scaler"},
                   [set_clean_steps](R& run) { set_clean_steps(run, 1); }});
    before("set count", "with changed step count", [](E& e) { e.set_step_count(9); });
    before("set updates", "with changed updates", [](E& e) {
        TrainingState state(e);
        state.set_updates(0, 0);
    });
    before("set norm", "with changed running norm",
           [](E& e) { TrainingState(e).set_running_norm({.mean = 1.0, .steps = 1}); });
    before("cancel", "with changed cancelled steps", [](E& e) {
        e.begin_step();
        e.cancel_step();
    });
    before("changed parameters", "'parameters_changed()", [](E& e) { e.parameters_changed(); });
    before("published", "'publish_master_weights()",
           [](E& e) { TrainingState(e).publish_master_weights(); });
    before("read", "'values of parameter 0'",
           [](E& e) { (void)TrainingState(e).full_fp32_parameter(0); });
    before("visit", N == 3 ? "'parameters of bucket" : "", [](E& e) { (void)full_parameters(e); });
    before("freeze", "'buckets made again 0', for set_trainable()",
           [](E& e) { set_trainable(e, {"first.bias"}, false); });
    all.push_back(
        {"freeze another",
         [](R& run) { run.before = [](E& e) { set_trainable(e, {"third.weight"}, false); }; },
         {"parameter number 2 is 'first.bias'", "frozen", "trainable"},
         [](R& run) { run.before = [](E& e) { set_trainable(e, {"first.bias"}, false); }; }});
    all.push_back({"norms",
                   [](R& run) { run.measures = [](E& e) { (void)e.gradient_norms(); }; },
                   {"'gradient norms"}});
    all.push_back(
        {"other norms",
         [](R& run) { run.measures = [](E& e) { (void)e.gradient_norms(NormKind::infinity); }; },
         {"'gradient norms, kind and scope: 10'", "'gradient norms, kind and scope: 20'"},
         [](R& run) { run.measures = [](E& e) { (void)e.gradient_norms(); }; }});
    all.push_back({"weight",
                   [](R& run) { run.weight.reset(); },
                   {"weight"},
                   [](R& run) {
                       run.options.reduction.kind = ReductionKind::weighted_mean;
                       run.weight = 3;
                   }});
    all.push_back({"announced", [](R& run) { run.announces = true; }});
    all.push_back({"announced last", [](R& run) { run.announces = true; },
                   N == 3 ? std::vector<std::string>{"'parameters of bucket", "'gradients of"}
                          : std::vector<std::string>{},
                   [](R& run) { run.options.reduction.schedule = ReductionSchedule::boundary; }});
    all.push_back({"handed over", [](R& run) { run.hands_over = true; }});
    all.push_back({"order",
                   [](R& run) {
                       run.order = {4, 2, 3, 1, 0};
                   },
                   N == 3 ? std::vector<std::string>{"'parameters of bucket 2'", "for unit 2 after"}
                          : std::vector<std::string>{}});
    all.push_back({"own update",
                   [](R& run) { run.updates_itself = true; },
                   {"'own update: rate 0.01", "'rate 0.01"}});
    auto const both = [](R& run) {
        run.engines = "ab";
        run.joined = 2;
    };
    auto const none = [](R& run) {
        run.engines = "ab";
        run.joined = 0;
    };
    all.push_back({"ended joint", [](R& run) { run.ends_joint = true; }});
    all.push_back({"one alone", none, {"'JointStep, engine 0 of 2: rate", "'rate 0.01"}, both});
    all.push_back({"one joint", both, {"'JointStep, engine 0 of 2: rate", "'rate 0.01"}, none});
    all.push_back(
        {"joint in another order", [](R& run) { run.engines = "ba"; },
         N == 0
             ? std::vector<std::string>{"'gradient sums of bucket", " of engine "}
             : std::vector<std::string>{"JointStep, engine 0 of 2: rate 0.01 after 2 micro-steps",
                                        "for engine "},
         both});
    all.push_back({"joint in another order, on two communicators",
                   [](R& run) { run.engines = "ba"; },
                   {N == 0 ? "waits in the collective 'gradient sums of bucket"
                           : "waits in the collective 'JointStep, engine 0 of 2: rate"},
                   [both](R& run) {
                       both(run);
                       run.is_apart = true;
                   }});
    all.push_back({"alone in another order", [](R& run) { run.engines = "ba"; }, {"rate"}, none});
    auto const passes = [&](char const* name, ReductionSchedule schedule, std::string const& text) {
        all.push_back({name, [](R& run) { run.passes = "bac"; },
                       text.empty() ? std::vector<std::string>{}
                                    : std::vector<std::string>{text, " of engine "},
                       [none, schedule](R& run) {
                           none(run);
                           run.options.reduction.schedule = schedule;
                       }});
    };
    std::string const gathers = N == 3 ? "'parameters of bucket" : "";
    passes("micro-steps of engines in another order", ReductionSchedule::every_micro_step,
           N == 3 ? gathers : "'gradients of bucket");
    passes("the same without reductions", ReductionSchedule::boundary, gathers);
    auto const calls = [&](char const* name, std::string const& text, auto const& of_each,
                           auto const& of_steps) {
        all.push_back({name, [](R& run) { run.calls = "ba"; },
                       text.empty() ? std::vector<std::string>{}
                                    : std::vector<std::string>{text, " of engine "},
                       [none, of_each, of_steps](R& run) {
                           none(run);
                           run.each = of_each;
                           run.inside = of_steps;
                       }});
    };
    auto const each = [&](char const* name, std::string const& text, auto const& of_each) {
        calls(name, text, of_each, nullptr);
    };
    each("changes", "'parameters_changed()", [](E& e) { e.parameters_changed(); });
    each("publications", "'publish_master_weights()",
         [](E& e) { TrainingState(e).publish_master_weights(); });
    each("readings", "'values of parameter 1'",
         [](E& e) { (void)TrainingState(e).full_fp32_parameter(1); });
    each("readings of states", "'state 1: values of parameter 1'",
         [](E& e) { (void)TrainingState(e).full_optimizer_state(1, "exp_avg_sq"); });
    each("settings of states", "'state 1: values to set", [](E& e) {
        std::vector<float> const ones(500, 1.0F);
        TrainingState(e).set_full_optimizer_state(1, "exp_avg_sq", ones);
    });
    each("visits", gathers, [](E& e) { (void)full_parameters(e); });
    each("gathers", "'parameters to gather", [](E& e) { (void)gather(e, {"first.bias"}); });
    each("live changes", "for set_trainable()",
         [](E& e) { set_trainable(e, {"first.bias"}, false); });
    std::string const sums = "'gradient sums of bucket"; // stage 0 sends them before it reads
    calls("readings of gradients", N == 0 ? sums : "'gradient: values of parameter 1'", nullptr,
          [](E& e) { (void)TrainingState(e).full_gradient(1); });
    calls("norms of engines", N == 0 ? sums : "'gradient norms", nullptr,
          [](E& e) { (void)e.gradient_norms(); });
    all.push_back({"joint with another engine",
                   [](R& run) { run.engines = "ac"; },
                   {N == 3 ? gathers : "'gradients of bucket", " of engine "},
                   both});
    all.push_back({"joint with one engine more",
                   [](R& run) { run.joined = 3; },
                   {"'JointStep, engine 0 of 2: rate", "'JointStep, engine 0 of 3: rate"},
                   [](R& run) {
                       run.engines = "abc";
                       run.joined = 2;
                   }});
    return all;
}

} // namespace

TEST_CASE("A rank that differs from the others in one choice gets an error that names it on every "
          "rank, or the same bits") {
    std::mt19937_64 random(38);
    in_every_stage([&]<int N>() {
        for (Choice<N> const& choice : choices<N>()) {
            Run<N> all;
            if (choice.of_all) {
                choice.of_all(all);
            }
            Run<N> one = all;
            choice.of_one(one);
            int const worlds[]{2, 3, 5};
            int const world = worlds[random() % 3];
            int const differs = static_cast<int>(random() % static_cast<unsigned>(world));
            INFO(choice.name << " on rank " << differs << " of " << world);
            using Values = std::vector<std::vector<float>>;
            auto const train_all = [&](int number, std::vector<Values>& values) {
                values.resize(static_cast<std::size_t>(world));
                return run_and_observe(world, [&](LoopbackCommunicator& communicator) {
                    auto const rank = communicator.rank();
                    values[static_cast<std::size_t>(rank)] =
                        train(communicator, rank == number ? one : all);
                });
            };
            std::vector<Values> alike, found;
            Outcomes const control = train_all(-1, alike);
            CHECK(control.rethrown == Outcome{});
            Outcomes const outcomes = train_all(differs, found);
            CHECK((outcomes.rethrown == Outcome{}) == choice.texts.empty());
            for (std::size_t rank = 0; rank < found.size(); ++rank) {
                Outcome const& outcome = outcomes.ranks[rank];
                INFO(outcome.type << ": " << outcome.message);
                CHECK((outcome == Outcome{}) == choice.texts.empty());
                CHECK((found[rank] == alike[rank] || !choice.texts.empty()));
                for (std::string const& text : choice.texts) {
                    CHECK_THAT(outcome.message, contains_text(text));
                }
            }
        }
    });
}

} // namespace zero::test::settings_agreement_test
