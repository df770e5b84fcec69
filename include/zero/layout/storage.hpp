#pragma once

#include "../core/detail/namespace.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief Where the parameters lie in memory, and who owns that memory.
enum class Storage : std::uint8_t {
    owned,    ///< in memory of the engine, which hands out pointers
    adopted,  ///< in one contiguous caller-owned block, communicated in place (stages 0 to 2)
    scattered ///< in caller-owned tensors anywhere, copied after the all-gather (stages 0 to 2)
};

} // namespace ZERO_NAMESPACE
