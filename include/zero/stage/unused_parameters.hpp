#pragma once

#include "../core/detail/namespace.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief The meaning of a trainable parameter without a gradient.
enum class UnusedParameters : std::uint8_t {
    zero,  ///< its gradient is zero: moments decay, weight decay applies
    error, ///< UnusedParameter is thrown at the end of the micro-step
    leave  ///< a step in which no rank had a gradient of it, in any micro-step, changes no bit of
           ///< its weights, its states and its own number of updates, from which the bias
           ///< correction follows
};

} // namespace ZERO_NAMESPACE
