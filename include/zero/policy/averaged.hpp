#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/host_device.hpp"
#include "../core/policy_category.hpp"
#include "../core/set_by_name.hpp"
#include "../ops/arithmetic.hpp"
#include "../ops/detail/check_option.hpp"
#include "../ops/detail/update_parts.hpp"
#include "optimizer.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace ZERO_NAMESPACE::detail {

/// @brief "Averaged<NAME>".
template <class O>
struct AveragedName {
    char text[64] = "Averaged<";

    constexpr AveragedName() noexcept {
        std::size_t at = 9;
        if constexpr (requires { O::name; }) {
            for (char const* from = O::name; *from != '\0' && at < sizeof text - 2; ++from) {
                text[at++] = *from;
            }
        }
        text[at] = '>';
    }
};

/// @brief Returns the name of a state of an optimizer, as checkpoints have it.
template <class O>
constexpr char const* base_state_name(std::size_t state) noexcept {
    if constexpr (OptimizerDeclaresStateNames<O>) {
        return O::state_names[state];
    } else {
        static_assert(O::states <= 4, "zero::Averaged: name the states of the optimizer "
                                      "(state_names).");
        return &"state0\0state1\0state2\0state3"[7 * state];
    }
}

/// @brief Returns whether a state of an optimizer is never negative.
template <class O>
constexpr bool is_nonnegative_state(std::size_t state) noexcept {
    if constexpr (requires { O::nonnegative_states; }) {
        return O::nonnegative_states[state];
    } else {
        return false;
    }
}

/// @brief Names and signs of the states of an optimizer, and of the average.
template <class O, class = std::make_index_sequence<O::states>>
struct AveragedStates;

template <class O, std::size_t... i>
struct AveragedStates<O, std::index_sequence<i...>> {
    static constexpr AveragedName<O> averaged_name{};
    /// Names of the states, for checkpoints and `TrainingState`.
    static constexpr char const* state_names[sizeof...(i) + 1] = {base_state_name<O>(i)...,
                                                                  "average"};
    static constexpr bool nonnegative_states[sizeof...(i) + 1] = {is_nonnegative_state<O>(i)...,
                                                                  false};
};

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief Options of `Averaged<O>`.
template <class O>
struct AveragedOptions {
    [[no_unique_address]] SetByName by_name{}; ///< members are set by name only
    /// The part of the average that an update keeps, in [0, 1]: 0.999 looks back over about 1,000
    /// updates. The first updates count equally, as long as that is faster. 1 is the plain mean.
    double decay = 0.999;
    /// The first update whose weights are averaged, from 1. Before it the average is the weights.
    std::uint64_t begin = 1;
    typename O::Options base{}; ///< options of the optimizer
};

/// @brief Another optimizer, and an average of the weights that it gives: exponential (EMA), or the
/// plain mean. The average is one more state: sharded, kept, offloaded and saved as the others are.
/// The pass that updates a weight moves it, so nothing is read twice. `AveragedWeights` shows it to
/// an evaluation or an export.
///
///     using Zero = zero::ZeroStage<2, zero::Averaged<zero::AdamW>>;
///     Zero engine(communicator, parameters,
///                 {.optimizer = {.decay = 0.9999, .base = {.weight_decay = 0.1}}});
///
/// With t = the number of the update, counted from `begin`, and in float:
///
///     rate = float(max(1 - decay, 1 / t)), and 1 before
///     average = fma(rate, p, fma(-rate, average, average))
///
/// A skipped step leaves it. A caller's own update must move it itself. A checkpoint of `O` loads
/// with `LoadOptions::may_differ`, and the average begins at the loaded weights.
/// @tparam O an `ElementOptimizer`
template <class O>
struct Averaged : detail::AveragedStates<O> {
    static_assert(
        !requires { O::average; }, "zero::Averaged: it averages already.");
    static_assert(ElementOptimizer<O>,
                  "zero::Averaged: it averages the weights of an element-wise optimizer, such as "
                  "zero::AdamW; zero::Lamb and zero::Muon update whole parameters.");

    using policy_category = OptimizerCategory;
    using Options = AveragedOptions<O>;
    using Base = O; ///< the optimizer
    /// For messages and the hash of the options.
    static constexpr char const* name = detail::AveragedStates<O>::averaged_name.text;

    static constexpr std::size_t average = O::states; ///< the number of the state
    static constexpr std::size_t states =
        O::states + 1;                          ///< those of the optimizer, and the average
    static constexpr bool whole_tensor = false; ///< element-wise: a parameter may be cut anywhere

    /// @brief The constants of a step.
    struct Hyper {
        typename O::Hyper base; ///< constants of the optimizer
        float rate;             ///< of the average
    };

    /// @param step number of this step, from 1
    ZERO_HOST_DEVICE static Hyper hyper(Options const& options, double learning_rate,
                                        std::uint64_t step) noexcept {
        double rate = 1.0;
        if (step > options.begin) {
            double const equal = 1.0 / static_cast<double>(step - options.begin + 1);
            double const decayed = ops::sub(1.0, options.decay);
            rate = decayed < equal ? equal : decayed;
        }
        return {.base = O::hyper(options.base, learning_rate, step),
                .rate = static_cast<float>(rate)};
    }

    /// @throws InvalidArgument naming the first option that is NaN or out of range
    [[gnu::cold]] static void validate(Options const& options) {
        detail::check_average(name, options.decay, options.begin);
        O::validate(options.base);
    }

    /// @brief Calls `visit(name, option)` for each option, for checkpoints.
    template <class P, class Visitor>
        requires requires(P& options, Visitor& visit) { O::for_each_option(options.base, visit); }
    static void for_each_option(P& options, Visitor&& visit) {
        visit("average_decay", options.decay);
        visit("average_begin", options.begin);
        O::for_each_option(options.base, visit);
    }

    /// @brief Updates one element, or a pack of elements, and moves the average.
    template <class F>
    ZERO_HOST_DEVICE void operator()(F gradient, F& parameter, F (&state)[states],
                                     Hyper const& hyper) const {
        F own[O::states];
        for (std::size_t index = 0; index < O::states; ++index) {
            own[index] = state[index];
        }
        O()(gradient, parameter, own, hyper.base);
        for (std::size_t index = 0; index < O::states; ++index) {
            state[index] = own[index];
        }
        state[average] = detail::moved_towards(state[average], parameter, hyper.rate);
    }
};

} // namespace ZERO_NAMESPACE
