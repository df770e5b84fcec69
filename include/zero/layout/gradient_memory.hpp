#pragma once

#include "../core/detail/namespace.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief The memory into which the backward pass writes the gradient of a parameter.
enum class GradientMemory : std::uint8_t {
    engine, ///< leased from the engine
    caller, ///< caller-owned, anywhere
    block   ///< caller-owned, at the same offset in one block of gradients as the parameter in the
            ///< adopted block; reduced in place
};

} // namespace ZERO_NAMESPACE
