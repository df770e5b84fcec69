#include "state_model.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <zero/layout/round_robin_partitioner.hpp>
#include <zero/ops/adagrad.hpp>
#include <zero/ops/adam.hpp>
#include <zero/ops/lamb.hpp>
#include <zero/ops/lion.hpp>
#include <zero/ops/muon.hpp>
#include <zero/ops/sgd.hpp>

#include <string>
#include <vector>

// The names of optimizer states and of the arrays in which they are stored.

namespace zero::test::held_array_names_test {

namespace {

using namespace state_model;
using Names = std::vector<std::string>;

/// An optimizer that does not name its states.
struct Unnamed {
    using policy_category = OptimizerCategory;
    using Options = AdamWOptions;
    using Hyper = AdamW::Hyper;
    static constexpr std::size_t states = 2;
    static constexpr bool whole_tensor = false;
    static void validate(Options const& options) { AdamW::validate(options); }
    static Hyper hyper(Options const& options, double learning_rate, std::uint64_t step) noexcept {
        return AdamW::hyper(options, learning_rate, step);
    }
    template <class F>
    void operator()(F gradient, F& parameter, F (&state)[states], Hyper const& hyper) const {
        AdamW()(gradient, parameter, state, hyper);
    }
};

template <class Optimizer>
Names names_of() {
    return TrainingState<typename ZeroStage<1, Optimizer>::EngineType>::state_names();
}

template <class Optimizer>
Names whole_names_of() {
    using Stage = ZeroStage<1, Optimizer, RoundRobinPartitioner>;
    return TrainingState<typename Stage::EngineType>::state_names();
}

/// The arrays of one parameter type, and the elements of each that rank 0 holds.
struct Held {
    Names names;
    std::vector<std::size_t> elements;
    std::vector<std::size_t> bytes; ///< bytes of 64 elements, by array
};

template <class Stage>
Held held() {
    return on_ranks<Held>(2, [](LoopbackCommunicator& communicator) {
        Toy<Stage> toy(communicator);
        Held held;
        TrainingState(*toy.engine)
            .for_each_held_array([&](std::string const& name, auto const& array) {
                held.names.push_back(name);
                held.elements.push_back(0);
                for (auto const& slice : array.slices) {
                    held.elements.back() += slice.elements;
                }
                held.bytes.push_back(array.bytes(64));
            });
        return held;
    })[0];
}

} // namespace

TEST_CASE("Shipped optimizers name their states as PyTorch's do") {
    CHECK(names_of<AdamW>() == Names{"exp_avg", "exp_avg_sq"});
    CHECK(names_of<Adam>() == Names{"exp_avg", "exp_avg_sq"});
    CHECK(names_of<Sgd>() == Names{"momentum_buffer"});
    CHECK(names_of<Lion>() == Names{"exp_avg"});
    CHECK(names_of<Adagrad>() == Names{"sum"});
    CHECK(whole_names_of<Lamb>() == Names{"exp_avg", "exp_avg_sq"});
    CHECK(whole_names_of<Muon>() == Names{"momentum_buffer", "exp_avg_sq"});
}

TEST_CASE("States without names are numbered") {
    CHECK(names_of<Unnamed>() == Names{"state0", "state1"});
}

TEST_CASE("Arrays are named by their role and the states, the scales of states as well") {
    auto const split = held<ZeroStage<1, Parameters<bfloat16>, SplitMasterWeights>>();
    CHECK(split.names == Names{"parameter", "remainder", "rounded_up", "exp_avg", "exp_avg_sq"});
    CHECK(split.bytes == std::vector<std::size_t>{128, 128, 8, 256, 256});
    CHECK(split.elements[0] == 300 + 500 + 7 + 129 + 40 + 64 + 0 + 1); // replicated
    CHECK(split.elements[1] < 300 + 500 + 7 + 129 + 64 + 0 + 1);       // this rank's part
    CHECK(split.elements[2] == split.elements[1]);
    CHECK(split.elements[4] == split.elements[1]);

    auto const scaled = held<ZeroStage<0, BlockScaledState<float16>>>();
    CHECK(scaled.names
          == Names{"parameter", "exp_avg", "exp_avg_sq", "exp_avg.scale", "exp_avg_sq.scale"});
    CHECK(scaled.bytes == std::vector<std::size_t>{256, 128, 128, 4, 4});
    CHECK(scaled.elements[3] == 300 + 500 + 7 + 129 + 64 + 0 + 1);

    CHECK(held<ZeroStage<3, Parameters<bfloat16>>>().names
          == Names{"parameter", "master", "exp_avg", "exp_avg_sq"});
    CHECK(held<ZeroStage<1, Parameters<bfloat16, float>>>().names
          == Names{"parameter", "parameter", "master", "exp_avg", "exp_avg_sq", "exp_avg",
                   "exp_avg_sq"});
}

} // namespace zero::test::held_array_names_test
