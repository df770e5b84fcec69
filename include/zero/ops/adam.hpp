#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/host_device.hpp"
#include "../core/policy_category.hpp"
#include "../core/set_by_name.hpp"
#include "arithmetic.hpp"
#include "detail/adam_moments.hpp"
#include "detail/check_option.hpp"

#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief Options of `Adam`. The learning rate is an argument of each step.
struct AdamOptions {
    [[no_unique_address]] SetByName by_name{}; ///< members are set by name only
    double beta1 = 0.9;        ///< decay of the first moment, 0 <= beta1 < 1 in float
    double beta2 = 0.999;      ///< decay of the second moment, 0 <= beta2 < 1 in float
    double epsilon = 1e-8;     ///< added to the root of the second moment, >= 0; with 0, an element
                               ///< that never had a gradient becomes NaN
    double weight_decay = 0.0; ///< L2: times the parameter, added to the gradient, >= 0
};

/// @brief Adam (Kingma and Ba, "Adam: A Method for Stochastic Optimization", algorithm 1), with
/// bias correction. The weight decay is part of the gradient and enters the moments. `AdamW` decays
/// parameters directly, which most models need.
///
/// All operations are in float, each rounded once, in exactly this order:
///
///     d = fma(weight_decay, p, g)
///     m = fma(rate1, d, fma(-rate1, m, m))
///     v = fma(beta2, v, mul(rate2, mul(d, d)))
///     e = fma(inverse_root, root(v), epsilon)
///     p = fma(-step_size, div(m, e), p)
///
/// The constants are those of `AdamW`. The parameter is rounded once per step.
struct Adam : detail::AdamFamily {
    using policy_category = OptimizerCategory;
    using Options = AdamOptions;
    static constexpr char const* name = "Adam"; ///< for messages and the hash of the options
    static constexpr bool whole_tensor = false; ///< element-wise: a parameter may be cut anywhere

    struct Hyper {
        detail::AdamConstants moments; ///< decay rates, bias corrections and step size
        float weight_decay;            ///< added to the gradient
    };

    /// @param step number of this step, from 1
    ZERO_HOST_DEVICE static Hyper hyper(Options const& options, double learning_rate,
                                        std::uint64_t step) noexcept {
        return {.moments = detail::adam_constants(options, learning_rate, step),
                .weight_decay = static_cast<float>(options.weight_decay)};
    }

    /// @throws InvalidArgument naming the first option that is NaN or out of range
    static void validate(Options const& options) {
        detail::validate_adam(name, options.beta1, options.beta2, options.epsilon,
                              options.weight_decay);
    }

    template <class F>
    ZERO_HOST_DEVICE void operator()(F gradient, F& parameter, F (&state)[states],
                                     Hyper const& hyper) const {
        F const decayed = ops::fma(hyper.weight_decay, parameter, gradient);
        F const direction = detail::adam_direction(decayed, state, hyper.moments);
        parameter = ops::fma(-hyper.moments.step_size, direction, parameter);
    }
};

} // namespace ZERO_NAMESPACE
