#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/host_device.hpp"
#include "../core/policy_category.hpp"
#include "../core/set_by_name.hpp"
#include "arithmetic.hpp"
#include "detail/check_option.hpp"
#include "detail/update_parts.hpp"

#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief Options of `Lion`. The learning rate is an argument of each step, about a tenth to a
/// third of AdamW's.
struct LionOptions {
    [[no_unique_address]] SetByName by_name{}; ///< members are set by name only
    double beta1 = 0.9;  ///< weight of the momentum in the direction of a step, 0 <= beta1 < 1 in
                         ///< float; the gradient has weight 1 - beta1
    double beta2 = 0.99; ///< decay of the momentum, 0 <= beta2 < 1 in float
    double weight_decay = 0.0; ///< decoupled: times the learning rate and the parameter, >= 0; 3 to
                               ///< 10 times AdamW's
};

/// @brief Lion (Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023, algorithm 2).
/// Every element moves by the learning rate, in the direction of the sign of an interpolated
/// momentum. It has half of Adam's states.
///
/// All operations are in float, each rounded once, in exactly this order:
///
///     c = fma(rate1, g, fma(-rate1, m, m))
///     s = select(less(0, c), 1, select(less(c, 0), -1, c))
///     m = fma(rate2, g, fma(-rate2, m, m))
///     p = sub(p, fma(learning_rate, s, mul(decay, p)))
///
/// with rate1 = float(1 - beta1), rate2 = float(1 - beta2) and decay = float(learning_rate *
/// weight_decay). The sign of zero is zero, and a NaN stays NaN. There is no bias correction:
/// m starts at zero, and only the sign of the direction counts.
struct Lion {
    using policy_category = OptimizerCategory;
    using Options = LionOptions;
    static constexpr char const* name = "Lion"; ///< for messages and the hash of the options

    static constexpr std::size_t states = 1; ///< momentum
    /// Names of the states, for checkpoints and `TrainingState`.
    static constexpr char const* state_names[states] = {"exp_avg"};
    static constexpr bool whole_tensor = false; ///< element-wise: a parameter may be cut anywhere

    struct Hyper {
        float rate1;         ///< 1 - beta1
        float rate2;         ///< 1 - beta2
        float learning_rate; ///< length of a step in each element
        float decay;         ///< learning rate times weight decay
    };

    /// @param step not used: the rule is the same in every step
    ZERO_HOST_DEVICE static Hyper hyper(Options const& options, double learning_rate,
                                        [[maybe_unused]] std::uint64_t step) noexcept {
        return {.rate1 = static_cast<float>(ops::sub(1.0, options.beta1)),
                .rate2 = static_cast<float>(ops::sub(1.0, options.beta2)),
                .learning_rate = static_cast<float>(learning_rate),
                .decay = static_cast<float>(ops::mul(learning_rate, options.weight_decay))};
    }

    /// @throws InvalidArgument naming the first option that is NaN or out of range
    [[gnu::cold]] static void validate(Options const& options) {
        detail::check_rate(name, "beta1", options.beta1);
        detail::check_rate(name, "beta2", options.beta2);
        detail::check_non_negative(name, "weight_decay", options.weight_decay);
    }

    /// @brief Calls `visit(name, option)` for each option, for checkpoints.
    template <class O, class Visitor>
    static void for_each_option(O& options, Visitor&& visit) {
        visit("beta1", options.beta1);
        visit("beta2", options.beta2);
        visit("weight_decay", options.weight_decay);
    }

    template <class F>
    ZERO_HOST_DEVICE void operator()(F gradient, F& parameter, F (&state)[states],
                                     Hyper const& hyper) const {
        F& momentum = state[0];
        F const direction = detail::moved_towards(momentum, gradient, hyper.rate1);
        F const sign = ops::select(ops::less(0.0F, direction), 1.0F,
                                   ops::select(ops::less(direction, 0.0F), -1.0F, direction));
        momentum = detail::moved_towards(momentum, gradient, hyper.rate2);
        parameter = detail::decayed_step(parameter, hyper.learning_rate, sign, hyper.decay);
    }
};

} // namespace ZERO_NAMESPACE
