#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/host_device.hpp"
#include "../core/policy_category.hpp"
#include "../core/set_by_name.hpp"
#include "arithmetic.hpp"
#include "detail/adam_moments.hpp"
#include "detail/check_option.hpp"
#include "detail/lamb_steps.hpp"

#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief Options of `Lamb`. The learning rate is an argument of each step.
struct LambOptions {
    [[no_unique_address]] SetByName by_name{}; ///< members are set by name only
    double beta1 = 0.9;    ///< decay of the first moment, 0 <= beta1 < 1 in float
    double beta2 = 0.999;  ///< decay of the second moment, 0 <= beta2 < 1 in float
    double epsilon = 1e-6; ///< added to the root of the second moment, >= 0; with 0, an element
                           ///< that never had a gradient becomes NaN
    double weight_decay =
        0.01; ///< times the parameter, added to the direction before its norm, >= 0
};

/// @brief LAMB: Adam with a step length in proportion to the norm of the parameter (You et al.,
/// "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", 2020, algorithm 2,
/// with phi the identity). Needs whole parameters.
///
/// With the moments m and v and the constants of `AdamW`, all operations are in float, each rounded
/// once, in exactly this order:
///
///     u = fma(inverse_correction, div(m, d), mul(weight_decay, p))
///     ratio = norm(p) / norm(u), or 1 if either norm is 0
///     p = fma(-float(learning_rate * ratio), u, p)
///
/// with d as in `AdamW` and inverse_correction = float(1 / correction1). The norms of the
/// whole parameter and the ratio are in double. The sums of squares are exact (see
/// `ops::Inspection`), so the bits do not depend on the order of summation.
struct Lamb : detail::AdamFamily {
    using policy_category = OptimizerCategory;
    using Options = LambOptions;
    static constexpr char const* name = "Lamb"; ///< for messages and the hash of the options
    static constexpr bool whole_tensor = true;  ///< the norms cover a whole parameter

    struct Hyper {
        detail::LambConstants constants; ///< decay rates, bias corrections and weight decay
        double learning_rate;            ///< before it is multiplied by the trust ratio
    };

    /// @param step number of this step, from 1
    ZERO_HOST_DEVICE static Hyper hyper(Options const& options, double learning_rate,
                                        std::uint64_t step) noexcept {
        return {.constants = {.moments = detail::adam_constants(options, 1.0, step),
                              .weight_decay = static_cast<float>(options.weight_decay)},
                .learning_rate = learning_rate};
    }

    /// @throws InvalidArgument naming the first option that is NaN or out of range
    static void validate(Options const& options) {
        detail::validate_adam(name, options.beta1, options.beta2, options.epsilon,
                              options.weight_decay);
    }

    static constexpr std::size_t scratch_floats(std::size_t, std::size_t) noexcept { return 0; }

    /// @brief One step of one parameter. @param tensor models `TensorArchetype`
    ZERO_NO_SIDE_CHECK
    template <class Tensor>
    ZERO_HOST_DEVICE static void update_tensor(Tensor const& tensor, Hyper const& hyper) noexcept {
        double const weights = tensor.template norm<detail::LambWeight>({});
        double const update = tensor.template norm<detail::LambUpdate>(hyper.constants);
        double const ratio = weights == 0.0 || update == 0.0 ? 1.0 : weights / update;
        tensor.template update<detail::LambStep>(
            {hyper.constants, static_cast<float>(ops::mul(hyper.learning_rate, ratio))});
    }
};

} // namespace ZERO_NAMESPACE
