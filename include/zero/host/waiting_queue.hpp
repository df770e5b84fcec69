#pragma once

#include "../core/detail/namespace.hpp"
#include "threaded_queue.hpp"
#include "when_full.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::host {

/// @brief A threaded queue that waits for room instead of throwing QueueFull. An engine creates one
/// for its communication.
class WaitingQueue final : public ThreadedQueue {
public:
    /// @param capacity as for `ThreadedQueue`
    explicit WaitingQueue(std::size_t capacity = default_capacity)
        : ThreadedQueue(capacity, WhenFull::wait) {}
};

} // namespace ZERO_NAMESPACE::host
