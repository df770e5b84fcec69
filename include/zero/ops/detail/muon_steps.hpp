#pragma once

#include "../../core/detail/namespace.hpp"
#include "../host_device.hpp"
#include "update_parts.hpp"

#include <cstddef>

/// @file
/// @brief The passes of `Muon` over the elements of a matrix, as functors.

namespace ZERO_NAMESPACE::detail {

/// @brief Updates the momentum and replaces the weight with Nesterov's direction.
struct MuonDirection {
    static constexpr std::size_t states = 1;
    using Hyper = float; ///< decay of the momentum

    template <class F>
    ZERO_HOST_DEVICE void operator()(F const& gradient, F& weight, F (&state)[1],
                                     Hyper const& momentum) const {
        state[0] = ops::fma(momentum, state[0], gradient);
        weight = ops::fma(momentum, state[0], gradient);
    }
};

/// @brief Takes the step along an orthogonalised direction.
struct MuonStep {
    static constexpr std::size_t states = 0;
    struct Hyper {
        float step_size;
        float decay;
    };

    template <class F, std::size_t N>
    ZERO_HOST_DEVICE void operator()(F const& direction, F& weight, F (&)[N],
                                     Hyper const& hyper) const {
        weight = decayed_step(weight, hyper.step_size, direction, hyper.decay);
    }
};

} // namespace ZERO_NAMESPACE::detail
