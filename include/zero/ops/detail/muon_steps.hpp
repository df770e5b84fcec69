#pragma once

#include "../../core/detail/namespace.hpp"
#include "../host_device.hpp"
#include "update_parts.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::detail {

/// Updates the momentum; the weight becomes Nesterov's direction.
struct MuonDirection {
    static constexpr std::size_t states = 1;
    using Hyper = float; ///< the momentum's decay

    template <class F>
    ZERO_HOST_DEVICE void operator()(F const& gradient, F& weight, F (&state)[1],
                                     Hyper const& momentum) const {
        state[0] = ops::fma(momentum, state[0], gradient);
        weight = ops::fma(momentum, state[0], gradient);
    }
};

/// The step along an orthogonalised direction.
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
