#pragma once

#include "../core/detail/namespace.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief The memory in which the parameters lie, and its owner.
enum class Storage : std::uint8_t {
    owned,    ///< in memory of the engine, which hands out pointers
    adopted,  ///< in one contiguous caller-owned block, communicated in place (stages 0 to 2)
    scattered ///< in caller-owned tensors anywhere, copied after the all-gather (stages 0 to 2)
};

} // namespace ZERO_NAMESPACE
