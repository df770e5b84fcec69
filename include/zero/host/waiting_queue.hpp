#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/memory_resource.hpp"
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

    /// @param capacity as for `ThreadedQueue`
    /// @param memory where the ring of commands lies; must outlive the queue
    WaitingQueue(std::size_t capacity, MemoryResource& memory)
        : ThreadedQueue(capacity, WhenFull::wait, memory) {}
};

} // namespace ZERO_NAMESPACE::host
