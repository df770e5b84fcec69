#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/host_device.hpp"
#include "../core/policy_category.hpp"
#include "../core/set_by_name.hpp"
#include "arithmetic.hpp"
#include "detail/adam_moments.hpp"
#include "detail/check_option.hpp"
#include "detail/update_parts.hpp"

#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief Options of `AdamW`. The learning rate is an argument of each step.
struct AdamWOptions {
    [[no_unique_address]] SetByName by_name{}; ///< members are set by name only
    double beta1 = 0.9;    ///< decay of the first moment, 0 <= beta1 < 1 in float
    double beta2 = 0.999;  ///< decay of the second moment, 0 <= beta2 < 1 in float
    double epsilon = 1e-8; ///< added to the root of the second moment, >= 0; with 0, an element
                           ///< that never had a gradient becomes NaN
    double weight_decay = 0.01; ///< decoupled: times the learning rate and the parameter, >= 0
};

/// @brief Adam with decoupled weight decay (Loshchilov and Hutter, "Decoupled Weight Decay
/// Regularization", algorithm 2), with bias correction.
///
/// All operations are in float, each rounded once, in exactly this order:
///
///     m = fma(rate1, g, fma(-rate1, m, m))
///     v = fma(beta2, v, mul(rate2, mul(g, g)))
///     d = fma(inverse_root, root(v), epsilon)
///     p = sub(p, fma(step_size, div(m, d), mul(decay, p)))
///
/// rate1 = float(1 - beta1), beta2 and rate2 = float(1 - beta2) are rounded first. The bias
/// corrections are then the sums of the weights that the rounded rates give, in double, so rounding
/// errors cancel. With t counted from 1:
///
///     correction1  = 1 - (1 - rate1)^t
///     correction2  = rate2 * ((1 - beta2^t) / (1 - beta2))
///     step_size    = float(learning_rate / correction1)
///     inverse_root = float(1 / sqrt(correction2))
///     decay        = float(learning_rate * weight_decay)
///
/// m decays by 1 - rate1 instead of the rounded beta1, because 0.9 is farther from a float than 0.1
/// is, and the difference would grow with every step. v decays by beta2: otherwise a square that
/// overflows float would make it, and then the parameter, NaN in the next step. The parameter is
/// rounded once per step; for small learning rates this is the largest error.
struct AdamW : detail::AdamFamily {
    using policy_category = OptimizerCategory;
    using Options = AdamWOptions;
    static constexpr char const* name = "AdamW"; ///< for messages and the hash of the options
    static constexpr bool whole_tensor = false;  ///< element-wise: a parameter may be cut anywhere

    struct Hyper {
        detail::AdamConstants moments; ///< decay rates, bias corrections and step size
        float decay;                   ///< learning rate times weight decay
    };

    /// @param step number of this step, from 1
    ZERO_HOST_DEVICE static Hyper hyper(Options const& options, double learning_rate,
                                        std::uint64_t step) noexcept {
        return {.moments = detail::adam_constants(options, learning_rate, step),
                .decay = static_cast<float>(ops::mul(learning_rate, options.weight_decay))};
    }

    /// @throws InvalidArgument naming the first option that is NaN or out of range
    static void validate(Options const& options) {
        detail::validate_adam(name, options.beta1, options.beta2, options.epsilon,
                              options.weight_decay);
    }

    template <class F>
    ZERO_HOST_DEVICE void operator()(F gradient, F& parameter, F (&state)[states],
                                     Hyper const& hyper) const {
        F const direction = detail::adam_direction(gradient, state, hyper.moments);
        parameter =
            detail::decayed_step(parameter, hyper.moments.step_size, direction, hyper.decay);
    }
};

} // namespace ZERO_NAMESPACE
