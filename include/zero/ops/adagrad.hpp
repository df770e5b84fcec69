#pragma once

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/host_device.hpp"
#include "../core/policy_category.hpp"
#include "../core/set_by_name.hpp"
#include "arithmetic.hpp"
#include "detail/check_option.hpp"

#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief Options of `Adagrad`. The learning rate is an argument of each step; to decay it, pass a
/// smaller one.
struct AdagradOptions {
    [[no_unique_address]] SetByName by_name{}; ///< members are set by name only
    double epsilon = 1e-10;    ///< added to the root of the sum of squares, >= 0; with 0, an
                               ///< element that never had a gradient becomes NaN
    double weight_decay = 0.0; ///< L2: times the parameter, added to the gradient, >= 0
};

/// @brief Adagrad (Duchi, Hazan and Singer, "Adaptive Subgradient Methods for Online Learning and
/// Stochastic Optimization", 2011, diagonal case, with the usual epsilon). Each element has its own
/// learning rate, which falls with the sum of its squared gradients.
///
/// All operations are in float, each rounded once, in exactly this order:
///
///     d = fma(weight_decay, p, g)
///     v = fma(d, d, v)
///     p = fma(negative_learning_rate, div(d, add(root(v), epsilon)), p)
///
/// The sum v starts at zero, so the length of the first step is the learning rate. A sum that
/// overflows float freezes the element.
struct Adagrad {
    using policy_category = OptimizerCategory;
    using Options = AdagradOptions;
    static constexpr char const* name = "Adagrad"; ///< for messages and the hash of the options

    static constexpr std::size_t states = 1; ///< sum of squares
    /// Names of the states, for checkpoints and `TrainingState`.
    static constexpr char const* state_names[states] = {"sum"};
    static constexpr bool nonnegative_states[states] = {true}; ///< sums of squares
    static constexpr bool whole_tensor = false; ///< element-wise: a parameter may be cut anywhere

    struct Hyper {
        float weight_decay;           ///< from the options
        float epsilon;                ///< from the options
        float negative_learning_rate; ///< negative, so a fused multiply-add subtracts
    };

    /// @param step not used: the rule is the same in every step
    ZERO_HOST_DEVICE static Hyper hyper(Options const& options, double learning_rate,
                                        [[maybe_unused]] std::uint64_t step) noexcept {
        return {.weight_decay = static_cast<float>(options.weight_decay),
                .epsilon = static_cast<float>(options.epsilon),
                .negative_learning_rate = static_cast<float>(-learning_rate)};
    }

    /// @throws InvalidArgument naming the first option that is NaN or out of range
    [[gnu::cold]] static void validate(Options const& options) {
        detail::check_epsilon(name, options.epsilon);
        detail::check_non_negative(name, "weight_decay", options.weight_decay);
    }

    /// @brief Calls `visit(name, option)` for each option, for checkpoints.
    template <class O, class Visitor>
    static void for_each_option(O& options, Visitor&& visit) {
        visit("epsilon", options.epsilon);
        visit("weight_decay", options.weight_decay);
    }

    template <class F>
    ZERO_HOST_DEVICE void operator()(F gradient, F& parameter, F (&state)[states],
                                     Hyper const& hyper) const {
        F& sum = state[0];
        F const decayed = ops::fma(hyper.weight_decay, parameter, gradient);
        sum = ops::fma(decayed, decayed, sum);
        F const direction = ops::div(decayed, ops::add(ops::root(sum), hyper.epsilon));
        parameter = ops::fma(hyper.negative_learning_rate, direction, parameter);
    }
};

} // namespace ZERO_NAMESPACE
