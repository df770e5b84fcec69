#pragma once

#include "../core/detail/namespace.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief The form in which the weights that the optimizer updates are stored.
enum class MasterForm : std::uint8_t {
    own,       ///< the parameter is its own master
    copied,    ///< a master weight of another type, beside the parameter
    split,     ///< beside the bfloat16 parameter, the bits that complete it to a float
    stochastic ///< the parameter is its own master and is rounded stochastically
};

} // namespace ZERO_NAMESPACE
