#pragma once

#include "../../core/detail/namespace.hpp"
#include "../arithmetic.hpp"
#include "../host_device.hpp"
#include "../number.hpp"

/// Marks a function that is a part of functors. A pack's own functions may be inlined only into
/// code for its instruction set, so a part that stays a function of its own calls each of them
/// (measured: 3.5 times slower). GCC inlines everything below a host loop at once, and generates
/// worse code where parts were inlined before that (3 times slower); clang inlines one level below
/// it and needs to be told about the others.
#if defined(__clang__)
#define ZERO_PART_OF_FUNCTOR [[gnu::always_inline]] ZERO_HOST_DEVICE inline
#else
#define ZERO_PART_OF_FUNCTOR ZERO_HOST_DEVICE inline
#endif

/// Lines that several optimizers have in common.
namespace ZERO_NAMESPACE::detail {

/// The moving average after `value`: fma(rate, value, fma(-rate, average, average)).
///
/// The average decays by 1 - rate instead of a rounded decay: 0.9 is farther from a float than 0.1
/// is, and the difference would grow with every step. An infinite average becomes NaN in the next
/// step.
template <ops::Number F>
ZERO_PART_OF_FUNCTOR F moved_towards(F const& average, F const& value, float rate) noexcept {
    return ops::fma(rate, value, ops::fma(-rate, average, average));
}

/// The parameter after a step with decoupled weight decay: sub(parameter, fma(step_size, direction,
/// mul(decay, parameter))).
///
/// @param decay the learning rate times the weight decay
template <ops::Number F>
ZERO_PART_OF_FUNCTOR F decayed_step(F const& parameter, float step_size, F const& direction,
                                    float decay) noexcept {
    return ops::sub(parameter, ops::fma(step_size, direction, ops::mul(decay, parameter)));
}

} // namespace ZERO_NAMESPACE::detail
