#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/host_device.hpp"
#include "../arithmetic.hpp"
#include "../number.hpp"
#include "adam_moments.hpp"
#include "update_parts.hpp"

#include <cstddef>

/// @file
/// @brief The passes of `Lamb` over the elements of a parameter, as functors.

namespace ZERO_NAMESPACE::detail {

/// @brief The constants of a step.
struct LambConstants {
    AdamConstants moments;
    float weight_decay;
};

/// @brief The direction of the update, before the trust ratio.
template <ops::Number F>
ZERO_PART_OF_FUNCTOR F lamb_update(F const& direction, F const& weight,
                                   LambConstants const& constants) noexcept {
    return ops::fma(constants.moments.step_size, direction,
                    ops::mul(constants.weight_decay, weight));
}

/// @brief Leaves the weights unchanged, so that `norm` returns the norm of the weights.
struct LambWeight {
    static constexpr std::size_t states = 0;
    struct Hyper {};

    template <class F, std::size_t N>
    ZERO_HOST_DEVICE void operator()(F const&, F&, F (&)[N], Hyper const&) const {}
};

/// @brief Updates the moments and replaces the weight with the update, so that `norm` returns the
/// norm of the update. The stored weight does not change.
struct LambUpdate {
    static constexpr std::size_t states = 2;
    using Hyper = LambConstants;

    template <class F>
    ZERO_HOST_DEVICE void operator()(F const& gradient, F& weight, F (&state)[2],
                                     Hyper const& hyper) const {
        weight = lamb_update(adam_direction(gradient, state, hyper.moments), weight, hyper);
    }
};

/// @brief Takes the step. It recomputes the update from the moments, which is cheaper than storing
/// it.
struct LambStep {
    static constexpr std::size_t states = 2;
    struct Hyper {
        LambConstants constants;
        float step_size;
    };

    template <class F>
    ZERO_HOST_DEVICE void operator()(F const&, F& weight, F (&state)[2], Hyper const& hyper) const {
        F const update = lamb_update(direction_of_moments(state, hyper.constants.moments), weight,
                                     hyper.constants);
        weight = ops::fma(-hyper.step_size, update, weight);
    }
};

} // namespace ZERO_NAMESPACE::detail
