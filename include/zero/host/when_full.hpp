#pragma once

#include "../core/detail/namespace.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE::host {

/// @brief The answer of a full queue to the thread that enqueues another command.
enum class WhenFull : std::uint8_t {
    throw_error, ///< throws QueueFull; the command is not enqueued
    wait         ///< blocks the thread until a quarter of the queue is free
};

} // namespace ZERO_NAMESPACE::host
