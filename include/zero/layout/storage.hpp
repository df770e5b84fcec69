#pragma once

#include "../core/detail/namespace.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief Whose memory holds the parameters.
enum class Storage : std::uint8_t {
    owned,    ///< the engine's; it hands out pointers
    adopted,  ///< one contiguous block of the caller's, communicated in place (stages 0 to 2)
    scattered ///< tensors anywhere in the caller's memory, copied after the all-gather (stages 0 to
              ///< 2)
};

} // namespace ZERO_NAMESPACE
