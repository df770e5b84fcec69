#pragma once

#include "../core/detail/namespace.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief The elements over which each norm of `Engine::gradient_norms` is taken.
enum class NormScope : std::uint8_t {
    global,    ///< one norm over all parameters
    groups,    ///< one norm per parameter group
    parameters ///< one norm per parameter, in registration order
};

} // namespace ZERO_NAMESPACE
