#pragma once

#include "../core/detail/namespace.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief The answer of a step to infinite or NaN gradients when the loss scaler does not decide
/// it.
enum class NonFinite : std::uint8_t {
    skip,       ///< change nothing
    step,       ///< update with them
    throw_error ///< change nothing; `step` waits for the decision and throws NonFiniteGradients
};

} // namespace ZERO_NAMESPACE
