#pragma once

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/hash.hpp"
#include "../core/policy_category.hpp"
#include "arithmetic.hpp"
#include "detail/check_option.hpp"
#include "host_device.hpp"

#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief Hyper-parameters of `Sgd`; the learning rate comes with each step.
struct SgdOptions {
    double momentum = 0.9;     ///< 0 <= momentum < 1
    double weight_decay = 0.0; ///< times the parameter, added to the gradient (L2), >= 0
    bool nesterov = false;     ///< looks one momentum step ahead
};

/// @brief Stochastic gradient descent with momentum (heavy ball, or Nesterov's variant), without
/// dampening.
///
/// Everything in float and in exactly this order:
///
///     d = fma(weight_decay, p, g)
///     b = fma(momentum, b, d)
///     s = nesterov ? fma(momentum, b, d) : b
///     p = fma(negative_learning_rate, s, p)
///
/// The buffer b starts at zero, so it equals d after the first step. The parameter is rounded once
/// per step.
struct Sgd {
    using policy_category = OptimizerCategory;
    using Options = SgdOptions;

    static constexpr std::size_t states = 1; ///< the momentum buffer, zero at first
    static constexpr bool whole_tensor =
        false; ///< each element by itself: a parameter may be cut anywhere

    struct Hyper {
        float momentum;               ///< as chosen
        float weight_decay;           ///< as chosen; added to the gradient
        float negative_learning_rate; ///< so that a fused multiply-add subtracts
        bool nesterov;                ///< as chosen
    };

    /// @param step not used: the rule is the same in every step.
    ZERO_HOST_DEVICE static Hyper hyper(Options const& options, double learning_rate,
                                        [[maybe_unused]] std::uint64_t step) noexcept {
        return {.momentum = static_cast<float>(options.momentum),
                .weight_decay = static_cast<float>(options.weight_decay),
                .negative_learning_rate = static_cast<float>(-learning_rate),
                .nesterov = options.nesterov};
    }

    /// @throws InvalidArgument naming the first field that is NaN or out of its range.
    static void validate(Options const& options) {
        detail::check_option(detail::is_rate(options.momentum), "Sgd", "momentum", options.momentum,
                             "at least 0 and less than 1");
        detail::check_option(detail::is_non_negative_float(options.weight_decay), "Sgd",
                             "weight_decay", options.weight_decay, "a finite float of at least 0");
    }

    /// @brief Adds what ranks have to agree on.
    static void add_to(Hash& hash, Options const& options) noexcept {
        hash.add("Sgd").add(options.momentum).add(options.weight_decay).add(options.nesterov);
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
