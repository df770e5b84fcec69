#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/host_device.hpp"
#include "../core/policy_category.hpp"
#include "../core/set_by_name.hpp"
#include "arithmetic.hpp"
#include "detail/check_option.hpp"

#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief Options of `Sgd`. The learning rate is an argument of each step.
struct SgdOptions {
    [[no_unique_address]] SetByName by_name{}; ///< members are set by name only
    double momentum = 0.9;     ///< decay of the sum of gradients, 0 <= momentum < 1 in float
    double weight_decay = 0.0; ///< L2: times the parameter, added to the gradient, >= 0
    bool nesterov = false;     ///< Nesterov's variant: looks one momentum step ahead
};

/// @brief Stochastic gradient descent with momentum (heavy ball, or Nesterov's variant), without
/// dampening.
///
/// All operations are in float, each rounded once, in exactly this order:
///
///     d = fma(weight_decay, p, g)
///     b = fma(momentum, b, d)
///     s = nesterov ? fma(momentum, b, d) : b
///     p = fma(negative_learning_rate, s, p)
///
/// The momentum b starts at zero, so it equals d after the first step. The parameter is rounded
/// once per step.
struct Sgd {
    using policy_category = OptimizerCategory;
    using Options = SgdOptions;
    static constexpr char const* name = "Sgd"; ///< for messages and the hash of the options

    static constexpr std::size_t states = 1; ///< momentum
    /// Names of the states, for checkpoints and `TrainingState`.
    static constexpr char const* state_names[states] = {"momentum_buffer"};
    static constexpr bool whole_tensor = false; ///< element-wise: a parameter may be cut anywhere

    struct Hyper {
        float momentum;               ///< from the options
        float weight_decay;           ///< from the options
        float negative_learning_rate; ///< negative, so a fused multiply-add subtracts
        bool nesterov;                ///< from the options
    };

    /// @param step not used: the rule is the same in every step
    ZERO_HOST_DEVICE static Hyper hyper(Options const& options, double learning_rate,
                                        [[maybe_unused]] std::uint64_t step) noexcept {
        return {.momentum = static_cast<float>(options.momentum),
                .weight_decay = static_cast<float>(options.weight_decay),
                .negative_learning_rate = static_cast<float>(-learning_rate),
                .nesterov = options.nesterov};
    }

    /// @throws InvalidArgument naming the first option that is NaN or out of range
    [[gnu::cold]] static void validate(Options const& options) {
        detail::check_rate(name, "momentum", options.momentum);
        detail::check_non_negative(name, "weight_decay", options.weight_decay);
    }

    /// @brief Calls `visit(name, option)` for each option, for checkpoints.
    template <class O, class Visitor>
    static void for_each_option(O& options, Visitor&& visit) {
        visit("momentum", options.momentum);
        visit("weight_decay", options.weight_decay);
        visit("nesterov", options.nesterov);
    }

    template <class F>
    ZERO_HOST_DEVICE void operator()(F gradient, F& parameter, F (&state)[states],
                                     Hyper const& hyper) const {
        F& momentum = state[0];
        F const direction = ops::fma(hyper.weight_decay, parameter, gradient);
        momentum = ops::fma(hyper.momentum, momentum, direction);
        if (hyper.nesterov) {
            parameter = ops::fma(hyper.negative_learning_rate,
                                 ops::fma(hyper.momentum, momentum, direction), parameter);
        } else {
            parameter = ops::fma(hyper.negative_learning_rate, momentum, parameter);
        }
    }
};

} // namespace ZERO_NAMESPACE
