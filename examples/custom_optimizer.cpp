// Your own optimizer: RMSProp in a few lines. Like the optimizers that ship, it is sharded,
// vectorised and bit-identical in every stage.

#include <zero/zero.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <vector>

/// RMSProp (Tieleman and Hinton, 2012): the gradient over the root of the moving average of its
/// squares.
struct RmsProp {
    using policy_category = zero::OptimizerCategory;
    struct Options {
        double decay = 0.99; ///< decay of the average, 0 <= decay < 1
        double epsilon = 1e-8;
    };
    struct Hyper { // constant during a step
        float decay, rate, epsilon, negative_learning_rate;
    };
    static constexpr std::size_t states = 1;    // numbers kept per element, zero at first
    static constexpr bool whole_tensor = false; // per element, so a parameter may be cut anywhere

    static void validate(Options const& options) {
        if (!(options.decay >= 0.0 && options.decay < 1.0))
            throw zero::InvalidArgument("RmsProp: decay must be at least 0 and less than 1.");
    }
    static Hyper hyper(Options const& options, double learning_rate,
                       std::uint64_t /*step*/) noexcept {
        return {static_cast<float>(options.decay), static_cast<float>(1.0 - options.decay),
                static_cast<float>(options.epsilon), static_cast<float>(-learning_rate)};
    }
    /// F is float or a pack of floats, so only the functions of zero::ops apply.
    template <class F>
    void operator()(F gradient, F& parameter, F (&state)[states], Hyper const& hyper) const {
        state[0] = zero::ops::fma(hyper.decay, state[0],
                                  zero::ops::mul(hyper.rate, zero::ops::mul(gradient, gradient)));
        F const direction =
            zero::ops::div(gradient, zero::ops::add(zero::ops::root(state[0]), hyper.epsilon));
        parameter = zero::ops::fma(hyper.negative_learning_rate, direction, parameter);
    }
};

namespace {

constexpr int world = 4;
constexpr int steps = 300;
constexpr std::size_t elements = 10'000;

/// Each rank pulls every weight towards its own target; together they converge to the mean.
float target(int rank, std::size_t i) {
    return std::sin(static_cast<float>(i)) + 0.5F * static_cast<float>(rank);
}

void add_gradient(std::span<float const> weights, std::span<float> gradient, int rank) {
    for (std::size_t i = 0; i < weights.size(); ++i) {
        gradient[i] += weights[i] - target(rank, i);
    }
}

struct Result {
    std::vector<float> weights;
    std::size_t bytes = 0; ///< size of rank 0's engine
};

template <int N>
Result train() {
    using Zero = zero::ZeroStage<N, RmsProp>;
    Result result;
    zero::run_ranks(world, [&](zero::LoopbackCommunicator& communicator) {
        std::vector<typename Zero::Registration> const parameters{
            {.name = "weights", .elements = elements}};
        Zero engine(communicator, parameters, {.optimizer = {.decay = 0.9}});
        for (int step = 0; step < steps; ++step) {
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(1)) {
                auto const weights = engine.acquire(0);
                auto const gradients = engine.gradients(0);
                add_gradient(weights[0], gradients[0], communicator.rank());
                engine.gradients_ready(0);
            }
            engine.step(0.02 * (1.0 - static_cast<double>(step) / steps));
        }
        // Every rank calls it, since it is collective in stage 3.
        engine.for_each_full_parameter([&](std::size_t, std::span<float const> weights) {
            if (communicator.rank() == 0)
                result = {{weights.begin(), weights.end()}, engine.memory_plan().engine_bytes()};
        });
    });
    return result;
}

float largest_error(std::vector<float> const& weights) {
    float worst = 0.0F;
    for (std::size_t i = 0; i < weights.size(); ++i) {
        float const mean = (target(0, i) + target(1, i) + target(2, i) + target(3, i)) / world;
        worst = std::fmax(worst, std::fabs(weights[i] - mean));
    }
    return worst;
}

} // namespace

int main() {
    Result const replicated = train<0>();
    Result const sharded = train<2>();
    std::printf("stage 0: %zu bytes per rank, largest error %g\n", replicated.bytes,
                static_cast<double>(largest_error(replicated.weights)));
    std::printf("stage 2: %zu bytes per rank, largest error %g\n", sharded.bytes,
                static_cast<double>(largest_error(sharded.weights)));
    bool const is_same =
        replicated.weights.size() == elements && sharded.weights.size() == elements
        && std::memcmp(replicated.weights.data(), sharded.weights.data(), elements * sizeof(float))
               == 0;
    std::printf("stages 0 and 2: weights %s\n", is_same ? "bit-identical" : "DIFFER");
    return is_same ? 0 : 1;
}
