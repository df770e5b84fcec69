#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/host_device.hpp"
#include "../arithmetic.hpp"
#include "../number.hpp"

#include <cstddef>

/// @file
/// @brief Steps that several optimizers share, and the macro that marks them.
///
/// `ZERO_PART_OF_FUNCTOR` marks a function that functors call. The functions of a pack can be
/// inlined only into code for its instruction set. A part that is not inlined therefore calls each
/// of them (measured: 3.5 times slower). GCC inlines everything below a host loop at once, and
/// generates worse code if parts were inlined before that (3 times slower). Clang inlines only one
/// level below the loop, so the attribute forces the others.

#if defined(__clang__)
#define ZERO_PART_OF_FUNCTOR [[gnu::always_inline]] ZERO_HOST_DEVICE inline
#else
#define ZERO_PART_OF_FUNCTOR ZERO_HOST_DEVICE inline
#endif

namespace ZERO_NAMESPACE::detail {

/// @brief Moves an average towards a value: fma(rate, value, fma(-rate, average, average)).
///
/// The average decays by 1 - rate instead of a rounded decay, because 0.9 is farther from a float
/// than 0.1 is, and the difference would grow with every step. An infinite average becomes NaN in
/// the next step.
template <ops::Number F>
ZERO_PART_OF_FUNCTOR F moved_towards(F const& average, F const& value, float rate) noexcept {
    return ops::fma(rate, value, ops::fma(-rate, average, average));
}

/// @brief Returns the parameter after a step with decoupled weight decay: sub(parameter,
/// fma(step_size, direction, mul(decay, parameter))).
/// @param decay learning rate times weight decay
template <ops::Number F>
ZERO_PART_OF_FUNCTOR F decayed_step(F const& parameter, float step_size, F const& direction,
                                    float decay) noexcept {
    return ops::sub(parameter, ops::fma(step_size, direction, ops::mul(decay, parameter)));
}

} // namespace ZERO_NAMESPACE::detail

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
