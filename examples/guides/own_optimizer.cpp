// An optimizer of your own, in three ways. docs/guides/own_optimizer.md explains them.

#include "ada_max.hpp"

#include <zero/zero.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <type_traits>
#include <vector>

namespace {

constexpr int world = 4;
constexpr int steps = 20;
constexpr double rate = 0.05;
constexpr std::array<std::size_t, 2> sizes{600, 50}; // a matrix and a bias

/// Trains on four ranks; `step(engine)` ends each step. Returns all parameters.
template <class Zero, class Step>
std::vector<float> train(Step const& step) {
    using Value = typename Zero::ParameterType;
    std::vector<float> result;
    zero::run_ranks(world, [&](zero::LoopbackCommunicator& communicator) {
        std::vector<Value> initial(sizes[0] + sizes[1]);
        for (std::size_t i = 0; i < initial.size(); ++i)
            initial[i] = zero::from_float<Value>(std::cos(static_cast<float>(i)));
        Zero engine(communicator,
                    {{.name = "matrix", .initial = initial.data(), .elements = sizes[0]},
                     {.name = "bias", .initial = initial.data() + sizes[0], .elements = sizes[1]}});
        for (int done = 0; done < steps; ++done) {
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(1)) {
                auto const weights = engine.acquire(0);
                auto const gradients = engine.gradients(0);
                for (std::size_t k = 0; k < sizes.size(); ++k) {
                    for (std::size_t i = 0; i < sizes[k]; ++i) {
                        float const target = std::sin(static_cast<float>(i))
                                             + static_cast<float>(communicator.rank());
                        gradients[k][i] =
                            zero::from_float<Value>(zero::to_float(weights[k][i]) - target);
                    }
                }
                engine.gradients_ready(0);
            }
            step(engine);
        }
        engine.for_each_full_parameter([&](std::size_t, auto values) {
            if (communicator.rank() != 0) return;
            for (auto const value : values) result.push_back(zero::to_float(value));
        });
    });
    return result;
}

/// Trains with AdaMax as a functor, which the engine runs.
template <class Zero>
std::vector<float> train_functor() {
    return train<Zero>([](Zero& engine) { engine.step(rate); });
}

/// Trains with AdaMax as an update of the caller, on the states of the stage's optimizer.
template <class Zero>
std::vector<float> train_update() {
    return train<Zero>([](Zero& engine) {
        engine.step(rate, [&](auto const& slice) {
            using State = std::remove_reference_t<decltype(slice.states[0][0])>;
            AdaMax::Hyper const hyper = AdaMax::hyper({}, slice.learning_rate, slice.update);
            auto const weights = slice.weights();
            for (std::size_t i = 0; i < weights.size(); ++i) {
                float const gradient =
                    zero::ops::mul(zero::to_float(slice.gradient[i]), slice.factor);
                float state[2] = {slice.state(0, i), slice.state(1, i)};
                AdaMax{}(gradient, weights[i], state, hyper);
                slice.states[0][i] = zero::from_float<State>(state[0]);
                slice.states[1][i] = zero::from_float<State>(state[1]);
            }
        });
    });
}

/// LARS (You, Gitman and Ginsburg, 2017): the rate of a parameter follows the norms of its weights
/// and of its gradient. The trust coefficient is part of the learning rate, and the momentum is the
/// state of `zero::Sgd`.
template <class Slice>
void update_by_lars(Slice const& slice) {
    auto const weights = slice.weights();
    if (weights.size() != sizes[slice.parameter])
        throw zero::InvalidArgument("LARS needs whole parameters; use zero::BalancedPartitioner.");
    auto const gradient = [&](std::size_t i) {
        return zero::to_float(slice.gradient[i]) * slice.factor;
    };
    double weight_square = 0.0, gradient_square = 0.0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
        weight_square += double{weights[i]} * double{weights[i]};
        gradient_square += double{gradient(i)} * double{gradient(i)};
    }
    double const trust = weight_square > 0.0 && gradient_square > 0.0
                             ? std::sqrt(weight_square / gradient_square)
                             : 1.0;
    auto const step = static_cast<float>(slice.learning_rate * trust);
    for (std::size_t i = 0; i < weights.size(); ++i) {
        slice.states[0][i] = 0.9F * slice.states[0][i] + step * gradient(i);
        weights[i] -= slice.states[0][i];
    }
}

template <class Zero>
std::vector<float> train_lars() {
    return train<Zero>(
        [](Zero& engine) { engine.step(0.01, [](auto const& slice) { update_by_lars(slice); }); });
}

/// Prints the slices that each rank updates.
template <class Zero>
void print_slices(char const* title) {
    std::array<std::string, world> lines;
    zero::run_ranks(world, [&](zero::LoopbackCommunicator& communicator) {
        Zero engine(communicator, {{.name = "matrix", .elements = sizes[0]},
                                   {.name = "bias", .elements = sizes[1]}});
        std::string& line = lines[static_cast<std::size_t>(communicator.rank())];
        engine.for_each_owned_slice([&](auto const& slice) {
            line += "  " + engine.layout().parameter(slice.parameter).name + "["
                    + std::to_string(slice.begin) + ", "
                    + std::to_string(slice.begin + slice.values.size()) + ")";
        });
    });
    std::printf("%s\n", title);
    for (int rank = 0; rank < world; ++rank)
        std::printf("  rank %d:%s\n", rank, lines[static_cast<std::size_t>(rank)].c_str());
}

bool report(char const* what, bool holds) {
    std::printf("%s: %s\n", what, holds ? "yes" : "NO");
    return holds;
}

template <int N>
using InFloat = zero::ZeroStage<N, AdaMax>;
// An update of the caller rounds states by itself, this one to nearest.
template <int N>
using Mixed = zero::ZeroStage<N, AdaMax, zero::Parameters<zero::bfloat16>,
                              zero::OptimizerState<zero::bfloat16, zero::RoundToNearest>>;
template <int N>
using Whole = zero::ZeroStage<N, zero::Sgd, zero::BalancedPartitioner>;
using Cut = zero::ZeroStage<2, zero::Sgd>;

} // namespace

int main() {
    auto const one = train_functor<InFloat<0>>();
    bool is_good = report("AdaMax as a functor: the same bits in every stage",
                          train_functor<InFloat<1>>() == one && train_functor<InFloat<2>>() == one
                              && train_functor<InFloat<3>>() == one);
    is_good &= report("AdaMax as an update of the caller: the bits of the functor",
                      train_update<InFloat<0>>() == one && train_update<InFloat<3>>() == one);
    auto const mixed = train_functor<Mixed<2>>();
    is_good &= report("with parameters and states in bfloat16: the same as well",
                      mixed != one && train_update<Mixed<2>>() == mixed
                          && train_functor<Mixed<0>>() == mixed);

    print_slices<Cut>("slices of stage 2:");
    print_slices<Whole<2>>("slices of stage 2 with BalancedPartitioner:");

    auto const lars = train_lars<Whole<0>>();
    is_good &= report("LARS on whole parameters: the same bits in every stage",
                      train_lars<Whole<1>>() == lars && train_lars<Whole<2>>() == lars
                          && train_lars<Whole<3>>() == lars);
    std::string refusal;
    try {
        (void)train_lars<Cut>();
    } catch (zero::InvalidArgument const& error) {
        refusal = error.what();
    }
    std::printf("  %s\n", refusal.c_str());
    is_good &= report("LARS on parts of parameters is refused", !refusal.empty());
    return is_good ? 0 : 1;
}
