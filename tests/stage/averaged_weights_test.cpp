#include "support/catch.hpp"
#include "support/outcome.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"
#include "support/temporary_folder.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/groups.hpp>
#include <zero/policy/averaged.hpp>
#include <zero/stage/averaged_weights.hpp>
#include <zero/stage/gathered_parameters.hpp>
#include <zero/stage/offload.hpp>
#include <zero/stage/offload_states.hpp>
#include <zero/stage/training_state.hpp>
#include <zero/stage/wire.hpp>
#include <zero/zero.hpp>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

// Averaged<O> and AveragedWeights: the average is the one of a straight-line reference, and showing
// it changes no bit of a training.

namespace zero::test::averaged_weights_test {

namespace {

using Values = std::vector<std::vector<float>>;
constexpr std::uint64_t steps = 7;

/// The state after a step, the same on all ranks.
struct Seen {
    Values weights;
    Values moments;
    Values averages;   ///< the state; empty without one
    Values parameters; ///< as a forward pass reads them
    std::uint64_t updates = 0;
};

template <class Engine>
Seen seen_of(Engine& engine) {
    TrainingState state(engine);
    bool const has_average = state.state_names().back() == "average";
    Seen seen;
    for (std::size_t p = 0; p < toy_specs().size(); ++p) {
        seen.weights.push_back(state.full_fp32_parameter(p));
        bool const is_trainable = toy_specs()[p].trainable;
        if (is_trainable) {
            seen.moments.push_back(state.full_optimizer_state(p, "exp_avg"));
        }
        if (has_average) {
            seen.averages.push_back(is_trainable ? state.full_optimizer_state(p, "average")
                                                 : seen.weights.back());
        }
    }
    seen.parameters = full_parameters(engine);
    seen.updates = engine.step_count();
    return seen;
}

/// Trains, calls `between(engine)` after each step, and returns what rank 0 sees after each.
/// @param overflow a step whose gradients are not finite
template <class Stage, class Between>
std::vector<Seen> train(int world, typename Stage::Options options, Between const& between,
                        std::optional<std::uint64_t> overflow = {}) {
    return on_ranks<std::vector<Seen>>(
               world,
               [&](LoopbackCommunicator& communicator) {
                   auto const parameters =
                       registration<typename Stage::ParameterType, typename Stage::GradientType>(
                           toy_specs());
                   Stage engine(communicator, parameters, options);
                   std::vector<Seen> result;
                   for (std::uint64_t step = 0; step < steps; ++step) {
                       auto const rank = static_cast<std::uint64_t>(communicator.rank());
                       engine.begin_step();
                       for (auto const micro_step : engine.micro_steps(2)) {
                           run_micro_step(engine, rank, step, micro_step,
                                          overflow == step ? HUGE_VALF : engine.loss_scale());
                       }
                       (void)engine.step(0.01);
                       between(engine);
                       result.push_back(seen_of(engine));
                   }
                   return result;
               })
        .front();
}

constexpr auto nothing = [](auto&) {};

/// The averages that a straight-line program computes of the weights after each update.
std::vector<Values> averages_of(std::vector<Seen> const& plain, double decay, std::uint64_t begin) {
    std::vector<Values> result;
    std::uint64_t updates = 0;
    for (Seen const& step : plain) {
        Values next = step.weights;
        bool const is_skipped = step.updates == updates;
        updates = step.updates;
        double const rate =
            updates > begin ? std::max(1.0 - decay, 1.0 / static_cast<double>(updates - begin + 1))
                            : 1.0;
        auto const r = static_cast<float>(rate);
        for (std::size_t p = 0; p < next.size(); ++p) {
            for (std::size_t i = 0; i < next[p].size() && toy_specs()[p].trainable; ++i) {
                float const before = result.empty() ? 0.0F : result.back()[p][i];
                next[p][i] =
                    is_skipped ? before : std::fma(r, next[p][i], std::fma(-r, before, before));
            }
        }
        result.push_back(next);
    }
    return result;
}

bool same(Values const& a, Values const& b) {
    auto const equal = [](std::vector<float> const& x, std::vector<float> const& y) {
        return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](float one, float other) {
            return std::bit_cast<std::uint32_t>(one) == std::bit_cast<std::uint32_t>(other);
        });
    };
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), equal);
}

/// Compares a composition with the same one without an average.
template <class... Policies>
void check(char const* name, double decay, std::uint64_t begin,
           std::optional<std::uint64_t> overflow = {}) {
    for (int const world : {1, 2, 3}) {
        using First = ZeroStage<0, Policies...>;
        typename First::Options options;
        options.reduction.schedule = ReductionSchedule::boundary; // the default differs
        auto const plain = train<First>(world, options, nothing, overflow);
        auto const expected = averages_of(plain, decay, begin);
        in_every_stage([&]<int N>() {
            INFO(name << ", W = " << world << ", decay " << decay << ", begin " << begin);
            using Stage = ZeroStage<N, Policies..., Averaged<AdamW>>;
            typename Stage::Options averaged;
            averaged.reduction.schedule = options.reduction.schedule;
            averaged.optimizer.decay = decay;
            averaged.optimizer.begin = begin;
            std::atomic<std::size_t> shown = 0;
            auto const found = train<Stage>(
                world, averaged,
                [&](Stage& engine) {
                    if (engine.step_count() % 2 == 0) {
                        return;
                    }
                    Seen const before = seen_of(engine);
                    {
                        AveragedWeights const averages(engine);
                        TrainingState state(engine);
                        for (std::size_t p = 0; p < toy_specs().size(); ++p) {
                            if (!same({state.full_fp32_parameter(p)}, {before.averages[p]})) {
                                throw std::logic_error("shows something else");
                            }
                        }
                        Values rounded = before.averages;
                        for (auto& parameter : rounded) {
                            for (float& value : parameter) {
                                using P = typename Stage::ParameterType;
                                value = to_float(from_float<P>(value));
                            }
                        }
                        if (!same(full_parameters(engine), rounded)) {
                            throw std::logic_error("parameters are not the rounded averages");
                        }
                    }
                    Seen const after = seen_of(engine);
                    if (!same(after.weights, before.weights)
                        || !same(after.parameters, before.parameters)) {
                        throw std::logic_error("the weights did not come back");
                    }
                    ++shown;
                },
                overflow);
            auto const odd = std::count_if(plain.begin(), plain.end(),
                                           [](Seen const& seen) { return seen.updates % 2 == 1; });
            CHECK(odd > 0);
            CHECK(shown == static_cast<std::size_t>(odd * world));
            for (std::size_t step = 0; step < steps; ++step) {
                INFO("step " << step);
                CHECK(same(found[step].weights, plain[step].weights));
                CHECK(same(found[step].moments, plain[step].moments));
                CHECK(same(found[step].parameters, plain[step].parameters));
                CHECK(same(found[step].averages, expected[step]));
            }
        });
    }
}

using Averages = ZeroStage<2, Averaged<AdamW>>;

/// Runs `body(engine, rank)` on two ranks, and returns what it threw.
template <class Body>
std::string failure_of(Body const& body) {
    return outcome_of([&] {
               run_ranks(2, [&](LoopbackCommunicator& communicator) {
                   Averages engine(communicator, registration<float>(toy_specs()), {});
                   body(engine, static_cast<std::uint64_t>(communicator.rank()));
               });
           })
        .message;
}

} // namespace

TEST_CASE("An average has the bits of a straight-line program, in every stage, and showing it "
          "changes no bit of a training") {
    check<Parameters<float>>("float", 0.7, 1);
    check<Parameters<float>>("plain mean", 1.0, 3);
    check<Parameters<bfloat16>>("copied masters", 0.5, 2);
    check<Parameters<bfloat16>, SplitMasterWeights>("split masters", 0.9, 1);
    check<Parameters<float16>, DynamicLossScaler>("skipped steps", 0.6, 1, 4);
}

TEST_CASE("A parameter that was never updated keeps its weights where averages are shown") {
    auto const body = [](auto& engine, std::uint64_t rank) {
        Values const before = full_parameters(engine);
        {
            AveragedWeights const averages(engine);
            if (!same(full_parameters(engine), before)) {
                throw std::logic_error("other weights before the first step");
            }
        }
        (void)run_step(engine, rank, 0);
        AveragedWeights const averages(engine);
        if (same(full_parameters(engine), before)) { // control
            throw std::logic_error("no step was made");
        }
    };
    CHECK(failure_of(body).empty());
}

TEST_CASE("While averages are shown, what would change or save the training is refused") {
    TemporaryFolder const folder;
    auto const body = [&](auto& engine, std::uint64_t rank) {
        auto const refuses = [&](char const* call, auto const& run) {
            try {
                run();
            } catch (OutOfOrder const& error) {
                std::string const text = error.what();
                if (text.find(std::string(call) + " while the parameters are averages")
                    != std::string::npos) {
                    return;
                }
                throw std::logic_error(text);
            }
            throw std::logic_error(std::string(call) + " was not refused");
        };
        (void)run_step(engine, rank, 0);
        {
            AveragedWeights const averages(engine);
            refuses("begin_step()", [&] { engine.begin_step(); });
            refuses("parameters_changed()", [&] { engine.parameters_changed(); });
            refuses("zero::AveragedWeights", [&] { AveragedWeights const again(engine); });
            refuses("offload_states()", [&] {
                offload_states(engine, {.path = folder.path(), .allow_page_cache = true});
            });
            refuses("reload_states()", [&] { reload_states(engine); });
            refuses("for_each_owned_slice()",
                    [&] { engine.for_each_owned_slice([](auto const&) {}); });
            if (gather(engine, {"embedding"}).values("embedding").front()
                != TrainingState(engine).full_optimizer_state(0, "average").front()) {
                throw std::logic_error("gather() reads something else");
            }
            refuses("gather()",
                    [&] { (void)gather(engine, {"embedding"}, Gather::all_write_equally); });
            refuses("set_step_count()", [&] { engine.set_step_count(0); });
        }
        (void)run_step(engine, rank, 1);
        offload_states(engine, {.path = folder.path(), .allow_page_cache = true});
        try {
            AveragedWeights const averages(engine);
            throw std::logic_error("states were away");
        } catch (OutOfOrder const&) {
            reload_states(engine);
        }
        AveragedWeights const averages(engine);
    };
    CHECK(failure_of(body).empty());
}

TEST_CASE("Weights come back where an exception ends the scope") {
    auto const body = [](auto& engine, std::uint64_t rank) {
        (void)run_step(engine, rank, 0);
        Values const before = full_parameters(engine);
        try {
            AveragedWeights const averages(engine);
            throw std::runtime_error("the evaluation failed");
        } catch (std::runtime_error const&) {}
        if (!same(full_parameters(engine), before)) {
            throw std::logic_error("the averages stayed");
        }
        (void)run_step(engine, rank, 1);
    };
    CHECK(failure_of(body).empty());
}

TEST_CASE("An exception on one rank ends the run with its cause") {
    using Stage = ZeroStage<3, Averaged<AdamW>>;
    auto const outcomes = run_and_observe(2, [](LoopbackCommunicator& communicator) {
        Stage engine(communicator, registration<float>(toy_specs()), {});
        AveragedWeights const averages(engine);
        if (communicator.rank() == 1) {
            throw std::runtime_error("the evaluation failed");
        }
        (void)full_parameters(engine);
    });
    CHECK(outcomes.ranks[0].type == "Aborted");
    CHECK(outcomes.rethrown.message == "the evaluation failed");
}

TEST_CASE("A held handle is refused at the end of averages, which can be ended again") {
    auto const body = [](auto& engine, std::uint64_t rank) {
        (void)run_step(engine, rank, 0);
        Values const before = full_parameters(engine);
        AveragedWeights averages(engine);
        {
            auto const weights = engine.acquire(0);
            auto const refusal = outcome_of([&] { averages.end(); });
            if (refusal.type != "OutOfOrder"
                || refusal.message.find("the end of zero::AveragedWeights") == std::string::npos) {
                throw std::logic_error(refusal.message);
            }
        }
        averages.end();
        averages.end();
        if (!same(full_parameters(engine), before)) {
            throw std::logic_error("the averages stayed");
        }
        (void)run_step(engine, rank, 1);
    };
    CHECK(failure_of(body).empty());
}

TEST_CASE("What a visitor wrote before averages are shown stays written") {
    using Stage = ZeroStage<2, Parameters<bfloat16>, Averaged<AdamW>>;
    auto const outcome = outcome_of([] {
        run_ranks(2, [](LoopbackCommunicator& communicator) {
            Stage engine(communicator, registration<bfloat16>(toy_specs()), {});
            (void)run_step(engine, static_cast<std::uint64_t>(communicator.rank()), 0);
            engine.for_each_owned_slice([](auto const& slice) {
                if (slice.parameter == 0 && slice.begin == 0 && !slice.values.empty()) {
                    slice.values[0] = from_float<bfloat16>(5.0F);
                }
            });
            { AveragedWeights const averages(engine); }
            if (full_parameters(engine)[0][0] != 5.0F) {
                throw std::logic_error("the written value was lost");
            }
        });
    });
    CHECK(outcome.message.empty());
}

namespace {

/// The parameters after each of four steps, between which averages are shown or not.
template <class Stage>
std::vector<Values> shown_or_not(bool is_shown, typename Stage::Options const& options) {
    return on_ranks<std::vector<Values>>(
               4,
               [&](LoopbackCommunicator& everyone) {
                   auto const train = [&](auto& communicator) {
                       Stage engine(communicator,
                                    registration<typename Stage::ParameterType,
                                                 typename Stage::GradientType>(toy_specs()),
                                    options);
                       std::vector<Values> seen;
                       for (std::uint64_t step = 0; step < 4; ++step) {
                           (void)run_step(engine, static_cast<std::uint64_t>(everyone.rank()),
                                          step);
                           if (is_shown) {
                               AveragedWeights const averages(engine);
                               (void)full_parameters(engine);
                           }
                           seen.push_back(full_parameters(engine));
                       }
                       return seen;
                   };
                   if constexpr (std::is_same_v<typename Stage::Communicator,
                                                LoopbackCommunicator>) {
                       return train(everyone);
                   } else {
                       typename Stage::Communicator groups(everyone, {.shard = 2});
                       return train(groups);
                   }
               })
        .front();
}

} // namespace

TEST_CASE("Showing averages changes no bit with codes, delayed updates, groups or files") {
    TemporaryFolder const folder;
    auto const check_stage = [&]<class Stage>(char const* name) {
        INFO(name);
        typename Stage::Options options;
        if constexpr (requires { options.offload.path; }) {
            options.offload.path = folder.path();
            options.offload.allow_page_cache = true;
        }
        auto const expected = shown_or_not<Stage>(false, options);
        CHECK(expected.size() == 4);
        CHECK(shown_or_not<Stage>(true, options) == expected);
    };
    using P = Parameters<bfloat16>;
    using A = Averaged<AdamW>;
    using Files = To<FileTier, BufferKind::optimizer_state, BufferKind::master_weights>;
    check_stage.operator()<ZeroStage<1, P, A, Wire<Int8Blocks>>>("codes in stage 1");
    check_stage.operator()<ZeroStage<3, P, A, Wire<Int4Blocks>>>("codes in stage 3");
    check_stage.operator()<ZeroStage<2, P, A, Offload<Files>>>("files");
    check_stage.operator()<ZeroStage<2, P, A, Offload<Files, DelayedUpdate>>>("late");
    check_stage.operator()<ZeroStage<3, P, A, Groups<LoopbackCommunicator, Hybrid>>>("groups");
}

TEST_CASE("Options of an average that are out of range are refused") {
    auto const message = [](AveragedOptions<AdamW> const& optimizer) {
        return outcome_of([&] { Averaged<AdamW>::validate(optimizer); }).message;
    };
    CHECK(message({}).empty());
    CHECK(message({.decay = 1.0}).empty());
    CHECK(message({.decay = 1.5})
          == "zero::Averaged<AdamW>: decay is 1.5; it must be at least 0 and at most 1; 1 is the "
             "plain mean.");
    CHECK_FALSE(message({.decay = std::nan("")}).empty());
    CHECK(message({.begin = 0})
          == "zero::Averaged<AdamW>: begin is 0; it must be at least 1, the first update.");
    CHECK(message({.base = {.beta1 = 1.0}}).find("beta1 is 1") != std::string::npos);
}

} // namespace zero::test::averaged_weights_test
