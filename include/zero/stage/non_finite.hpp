#pragma once

#include "../core/detail/namespace.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief How a step treats infinite or NaN gradients if the loss scaler does not decide it.
enum class NonFinite : std::uint8_t {
    skip,       ///< change nothing
    step,       ///< update with them
    throw_error ///< change nothing; `step` waits for the decision and throws NonFiniteGradients
};

} // namespace ZERO_NAMESPACE
