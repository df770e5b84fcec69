#pragma once

#include "../core/detail/namespace.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief The meaning of a trainable parameter without a gradient in a micro-step.
enum class UnusedParameters : std::uint8_t {
    zero, ///< its gradient is zero: moments decay, weight decay applies
    error ///< UnusedParameter is thrown at the end of the micro-step
};

} // namespace ZERO_NAMESPACE
