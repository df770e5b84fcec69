#include "engine_model.hpp"
#include "support/catch.hpp"

#include <zero/layout/round_robin_partitioner.hpp>

#include <array>
#include <utility>

// Moves checkpoints between all stages, partitioners and numbers of ranks. An engine that loaded
// one continues like an engine that was given the same state by setters.

namespace zero::test::reshard_stages_test {

namespace {

using namespace engine_model;

constexpr std::array<int, 5> worlds{1, 2, 3, 4, 8};
constexpr std::uint64_t saved_steps = 3;
constexpr std::uint64_t all_steps = 8;

/// The whole training state, by parameter.
struct State {
    Bits bits;
    std::vector<std::vector<float>> weights;
    std::vector<std::vector<std::vector<float>>> states; ///< values by parameter and state
};

template <class Stage>
State read(Stage& engine) {
    TrainingState state(engine);
    State result{state_of(engine), {}, {}};
    for (std::size_t p = 0; p < engine.layout().parameters().size(); ++p) {
        result.weights.push_back(state.full_fp32_parameter(p));
        result.states.emplace_back();
        for (auto const& name : state.state_names()) {
            if (engine.layout().parameter(p).trainable) {
                result.states.back().push_back(state.full_optimizer_state(p, name));
            }
        }
    }
    return result;
}

template <class Stage>
void write(Stage& engine, State const& values) {
    TrainingState state(engine);
    auto const names = state.state_names();
    for (std::size_t p = 0; p < values.weights.size(); ++p) {
        state.set_full_fp32_parameter(p, values.weights[p]);
        for (std::size_t s = 0; s < values.states[p].size(); ++s) {
            state.set_full_optimizer_state(p, names[s], values.states[p][s]);
        }
    }
    engine.set_step_count(saved_steps);
}

struct Continued {
    Bits loaded;
    Bits after_loading;
    Bits after_setting;
};

/// Saves on `from` ranks, loads on `to` ranks, and trains on.
template <class From, class To>
void check_move(int from, int to) {
    TemporaryFolder const folder;
    State const saved = on_ranks<State>(from, [&](LoopbackCommunicator& communicator) {
        Toy<From> toy(communicator, same_schedule<From>());
        train(*toy.engine, communicator, 0, saved_steps);
        save_checkpoint(*toy.engine, folder.path());
        return read(*toy.engine);
    })[0];
    auto const all = on_ranks<Continued>(to, [&](LoopbackCommunicator& communicator) {
        Continued own;
        {
            Toy<To> toy(communicator, same_schedule<To>());
            load_checkpoint(*toy.engine, folder.path());
            own.loaded = state_of(*toy.engine);
            train(*toy.engine, communicator, saved_steps, all_steps);
            own.after_loading = state_of(*toy.engine);
        }
        Toy<To> toy(communicator, same_schedule<To>());
        write(*toy.engine, saved);
        train(*toy.engine, communicator, saved_steps, all_steps);
        own.after_setting = state_of(*toy.engine);
        return own;
    });
    for (Continued const& own : all) {
        INFO(from << " ranks to " << to);
        CHECK(own.loaded == saved.bits);
        CHECK(own.after_loading == own.after_setting);
        CHECK(own.after_loading != saved.bits);
    }
}

/// Each pair of stages and partitioners moves between other numbers of ranks.
template <class Partitioner, int From, int... To>
void check_stages(std::size_t& move, std::integer_sequence<int, To...>) {
    auto const next = [&](auto check) {
        check(worlds[move % worlds.size()], worlds[move / worlds.size() % worlds.size()]);
        ++move;
    };
    (next([](int from, int to) {
         check_move<ZeroStage<From>, ZeroStage<To, Partitioner>>(from, to);
     }),
     ...);
}

} // namespace

TEST_CASE("Between any two stages and partitioners five more steps equal those of an engine that "
          "was given the state") {
    std::size_t move = 0;
    std::make_integer_sequence<int, 4> const stages;
    check_stages<ContiguousPartitioner, 0>(move, stages);
    check_stages<ContiguousPartitioner, 1>(move, stages);
    check_stages<ContiguousPartitioner, 2>(move, stages);
    check_stages<ContiguousPartitioner, 3>(move, stages);
    check_stages<RoundRobinPartitioner, 0>(move, stages);
    check_stages<RoundRobinPartitioner, 1>(move, stages);
    check_stages<RoundRobinPartitioner, 2>(move, stages);
    check_stages<RoundRobinPartitioner, 3>(move, stages);
    CHECK(move >= worlds.size() * worlds.size()); // every pair of numbers of ranks
}

TEST_CASE("Four ranks, three and four again keep every bit where stages 2, 3 and 1 follow one "
          "another") {
    TemporaryFolder const folder;
    auto const leg = [&]<class Stage>(Stage*, int world, bool is_first) {
        return on_ranks<std::pair<Bits, Bits>>(world, [&](LoopbackCommunicator& communicator) {
            Toy<Stage> toy(communicator, same_schedule<Stage>());
            if (!is_first) {
                load_checkpoint(*toy.engine, folder.path());
            }
            Bits const before = state_of(*toy.engine);
            std::uint64_t const step = toy.engine->step_count();
            train(*toy.engine, communicator, step, step + 2);
            save_checkpoint(*toy.engine, folder.path());
            return std::pair{before, state_of(*toy.engine)};
        })[0];
    };
    auto const four = leg(static_cast<ZeroStage<2>*>(nullptr), 4, true);
    auto const three = leg(static_cast<ZeroStage<3>*>(nullptr), 3, false);
    auto const last = leg(static_cast<ZeroStage<1>*>(nullptr), 4, false);
    CHECK(three.first == four.second);
    CHECK(last.first == three.second);
    CHECK(last.second != last.first);
}

} // namespace zero::test::reshard_stages_test
