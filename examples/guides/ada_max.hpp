// An optimizer of your own as a functor. docs/guides/own_optimizer.md explains it.

#pragma once

#include <zero/core/error.hpp>
#include <zero/core/hash.hpp>
#include <zero/core/host_device.hpp>
#include <zero/ops/arithmetic.hpp>
#include <zero/ops/integer_power.hpp>
#include <zero/policy/optimizer.hpp>

#include <cstddef>
#include <cstdint>

struct AdaMaxOptions {
    double beta1 = 0.9;   ///< 0 <= beta1 < 1
    double beta2 = 0.999; ///< 0 <= beta2 < 1
    double epsilon = 1e-8;
    double weight_decay = 0.0; ///< times the parameter, added to the gradient
};

/// AdaMax (Kingma and Ba, 2015, algorithm 2): Adam with the largest recent gradient in place of the
/// root mean square.
struct AdaMax {
    using policy_category = zero::OptimizerCategory;
    using Options = AdaMaxOptions; // the type of Zero::Options::optimizer
    struct Hyper {                 // constant during a step
        float rate1, beta2, epsilon, weight_decay, negative_step;
    };
    static constexpr std::size_t states = 2; // floats per element, zero at first
    static constexpr char const* state_names[states] = {"exp_avg", "exp_inf"};
    static constexpr bool whole_tensor = false; // per element: a parameter may be cut anywhere

    ZERO_HOST_DEVICE static Hyper hyper(Options const& options, double learning_rate,
                                        std::uint64_t step) noexcept {
        double const correction = 1.0 - zero::ops::integer_power(options.beta1, step);
        return {static_cast<float>(1.0 - options.beta1), static_cast<float>(options.beta2),
                static_cast<float>(options.epsilon), static_cast<float>(options.weight_decay),
                static_cast<float>(-learning_rate / correction)};
    }

    template <class F> // float, or a pack of floats
    ZERO_HOST_DEVICE void operator()(F gradient, F& parameter, F (&state)[states],
                                     Hyper const& hyper) const {
        using namespace zero::ops;
        F const slope = fma(hyper.weight_decay, parameter, gradient);
        F const size = select(less(slope, 0.0F), sub(0.0F, slope), slope);
        F const faded = mul(hyper.beta2, state[1]);
        state[0] = fma(hyper.rate1, slope, fma(-hyper.rate1, state[0], state[0]));
        state[1] = select(less(size, faded), faded, size); // a NaN stays one
        F const direction = div(state[0], add(state[1], hyper.epsilon));
        parameter = fma(hyper.negative_step, direction, parameter);
    }

    static void validate(Options const& options) {
        auto const is_rate = [](double beta) { return beta >= 0.0 && beta < 1.0; };
        if (!is_rate(options.beta1) || !is_rate(options.beta2))
            throw zero::InvalidArgument("AdaMax: beta1 and beta2 must be in [0, 1).");
        if (!(options.epsilon > 0.0 && options.epsilon <= 1.0))
            throw zero::InvalidArgument("AdaMax: epsilon must be in (0, 1].");
        if (!(options.weight_decay >= 0.0 && options.weight_decay <= 1.0))
            throw zero::InvalidArgument("AdaMax: weight_decay must be in [0, 1].");
    }

    /// Optional: ranks with different options are refused.
    static void add_to(zero::Hash& hash, Options const& options) noexcept {
        hash.add(options.beta1).add(options.beta2).add(options.epsilon).add(options.weight_decay);
    }
};
static_assert(zero::diagnose_optimizer<AdaMax>());
