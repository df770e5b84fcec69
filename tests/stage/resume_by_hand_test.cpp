#include "state_model.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"

#include <zero/policy/loss_scaler_presets.hpp>

#include <bit>
#include <vector>

// A run continues in a fresh engine from the state that the public interface reads and sets.

namespace zero::test::resume_by_hand_test {

namespace {

using namespace state_model;

constexpr int world = 3;

/// Everything that a run depends on.
template <class Stage>
struct Saved {
    std::vector<std::vector<float>> weights;
    std::vector<std::vector<std::vector<float>>> states; ///< by parameter and state
    std::uint64_t step_count = 0;
    decltype(std::declval<Stage>().loss_scaler_state()) scaler;
    std::vector<double> factors;
    std::vector<AdamWOptions> hyper;

    [[nodiscard]] std::vector<std::uint64_t> bits() const {
        std::vector<std::uint64_t> all{step_count, std::bit_cast<std::uint32_t>(scaler.scale)};
        for (double const factor : factors) {
            all.push_back(std::bit_cast<std::uint64_t>(factor));
        }
        for (AdamWOptions const& options : hyper) {
            all.push_back(std::bit_cast<std::uint64_t>(options.weight_decay));
        }
        for (std::size_t p = 0; p < weights.size(); ++p) {
            for (std::uint32_t const bit : bits_of(weights[p])) {
                all.push_back(bit);
            }
            for (auto const& state : states[p]) {
                for (std::uint32_t const bit : bits_of(state)) {
                    all.push_back(bit);
                }
            }
        }
        return all;
    }
};

template <class Stage>
Saved<Stage> save(Stage& engine) {
    Saved<Stage> saved;
    TrainingState state(engine);
    for (std::size_t p = 0; p < toy_specs().size(); ++p) {
        saved.weights.push_back(state.full_fp32_parameter(p));
        saved.states.emplace_back();
        for (auto const& name : state.state_names()) {
            if (toy_specs()[p].trainable) {
                saved.states.back().push_back(state.full_optimizer_state(p, name));
            }
        }
    }
    saved.step_count = engine.step_count();
    saved.scaler = engine.loss_scaler_state();
    for (std::size_t group : {0U, 1U}) {
        saved.factors.push_back(engine.learning_rate_factor(group));
        saved.hyper.push_back(engine.hyper_parameters(group));
    }
    return saved;
}

template <class Stage, class Other>
void restore(Stage& engine, Saved<Other> const& saved, std::uint64_t off) {
    TrainingState state(engine);
    for (std::size_t p = 0; p < toy_specs().size(); ++p) {
        state.set_full_fp32_parameter(p, saved.weights[p]);
        for (std::size_t index = 0; index < saved.states[p].size(); ++index) {
            state.set_full_optimizer_state(p, state.state_names()[index], saved.states[p][index]);
        }
    }
    engine.set_step_count(saved.step_count + off);
    engine.set_loss_scaler_state(saved.scaler);
    for (std::size_t group : {0U, 1U}) {
        engine.set_learning_rate(group, saved.factors[group]);
        engine.set_hyper_parameters(group, saved.hyper[group]);
    }
}

template <class Stage>
typename Stage::Options options_of_run() {
    typename Stage::Options options{.groups = {{}, {}}};
    options.reduction.schedule = ReductionSchedule::boundary;
    return options;
}

/// Takes steps `begin` to `end`.
template <class Stage>
void train(Stage& engine, int rank, std::uint64_t begin, std::uint64_t end) {
    for (std::uint64_t step = begin; step < end; ++step) {
        if (step == 1) {
            engine.set_learning_rate(1, 0.5);
            engine.set_hyper_parameters(0, {.weight_decay = 0.25});
        }
        (void)run_step(engine, static_cast<std::uint64_t>(rank), step, 2, 0.01, 24);
    }
}

/// Trains 3 steps in one stage and 3 in the other; `off` is added to the step count between them.
template <class First, class Second>
std::vector<std::vector<std::uint64_t>> resumed(std::uint64_t off = 0) {
    return on_ranks<std::vector<std::uint64_t>>(world, [&](LoopbackCommunicator& communicator) {
        Saved<First> saved;
        {
            Toy<First> toy(communicator, options_of_run<First>());
            train(*toy.engine, communicator.rank(), 0, 3);
            saved = save(*toy.engine);
        }
        Toy<Second> toy(communicator, options_of_run<Second>());
        restore(*toy.engine, saved, off);
        train(*toy.engine, communicator.rank(), 3, 6);
        return save(*toy.engine).bits();
    });
}

template <class Stage>
std::vector<std::vector<std::uint64_t>> whole() {
    return on_ranks<std::vector<std::uint64_t>>(world, [](LoopbackCommunicator& communicator) {
        Toy<Stage> toy(communicator, options_of_run<Stage>());
        train(*toy.engine, communicator.rank(), 0, 6);
        return save(*toy.engine).bits();
    });
}

template <class... Policies>
void check_resumed() {
    auto const expected = whole<ZeroStage<0, Policies...>>();
    for (auto const& rank : expected) {
        CHECK((rank == expected[0]));
        CHECK(rank[0] == 6); // steps
    }
    in_every_stage([&]<int N>() {
        using Stage = ZeroStage<N, Policies...>;
        using Other = ZeroStage<3 - N, Policies...>;
        CHECK((whole<Stage>() == expected));
        CHECK((resumed<Stage, Stage>() == expected));
        CHECK((resumed<Stage, Other>() == expected));
        CHECK_FALSE((resumed<Stage, Other>(1)
                     == expected)); // the comparison finds a step count that is off by one
    });
}

} // namespace

TEST_CASE("A run of AdamW resumed by hand in another stage is the run that never stopped") {
    check_resumed<>();
    check_resumed<Parameters<bfloat16>>();
    check_resumed<Parameters<bfloat16>, SplitMasterWeights>();
    check_resumed<Parameters<bfloat16>, DynamicLossScaler>();
}

TEST_CASE("A resumed run rounds with the same random numbers, which depend on the step count") {
    check_resumed<Parameters<bfloat16>, StochasticRounding>();
}

TEST_CASE("Different step counts on two ranks are a mismatch in the next step") {
    auto const outcomes = run_and_observe(2, [](LoopbackCommunicator& communicator) {
        Toy<ZeroStage<1>> toy(communicator);
        toy.engine->set_step_count(7 + static_cast<std::uint64_t>(communicator.rank()));
        (void)run_step(*toy.engine, 0, 0).report();
    });
    for (Outcome const& outcome : outcomes.ranks) {
        CHECK(outcome.type == "CollectiveMismatch");
    }
}

TEST_CASE("Step count, learning rate factors and hyper-parameters are read as they were set") {
    for (auto const& seen : on_ranks<std::vector<double>>(2, [](LoopbackCommunicator& rank) {
             Toy<ZeroStage<2>> toy(rank, options_of_run<ZeroStage<2>>());
             auto& engine = *toy.engine;
             std::vector<double> values{engine.learning_rate_factor(1)};
             engine.set_learning_rate(1, 0.125);
             engine.set_hyper_parameters(1, {.weight_decay = 0.5});
             engine.set_step_count(41);
             values.push_back(engine.learning_rate_factor(0));
             values.push_back(engine.learning_rate_factor(1));
             values.push_back(engine.hyper_parameters(1).weight_decay);
             values.push_back(static_cast<double>(engine.step_count()));
             (void)run_step(engine, 0, 0);
             values.push_back(static_cast<double>(engine.step_count()));
             bool const is_refused =
                 outcome_of([&] { (void)engine.learning_rate_factor(2); }).type == "InvalidArgument"
                 && outcome_of([&] { (void)engine.hyper_parameters(2); }).type == "InvalidArgument";
             values.push_back(is_refused ? 1.0 : 0.0);
             return values;
         })) {
        CHECK((seen == std::vector<double>{1.0, 1.0, 0.125, 0.5, 41.0, 42.0, 1.0}));
    }
}

} // namespace zero::test::resume_by_hand_test
