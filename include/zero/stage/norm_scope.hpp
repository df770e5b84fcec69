#pragma once

#include "../core/detail/namespace.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief What each norm is taken over.
enum class NormScope : std::uint8_t {
    global,    ///< all parameters: one norm
    groups,    ///< one for each parameter group
    parameters ///< one for each parameter, in the order of registration
};

} // namespace ZERO_NAMESPACE
