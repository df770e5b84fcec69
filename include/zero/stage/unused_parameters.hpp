#pragma once

#include "../core/detail/namespace.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief What it means that a trainable parameter got no gradient in a micro-step.
enum class UnusedParameters : std::uint8_t {
    zero, ///< its gradient is zero: moments decay, weight decay applies
    error ///< UnusedParameter is thrown at the end of the micro-step
};

} // namespace ZERO_NAMESPACE
