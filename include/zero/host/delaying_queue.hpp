#pragma once

#include "../core/detail/namespace.hpp"
#include "threaded_queue.hpp"
#include "when_full.hpp"

#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE::host {

/// @brief A threaded queue that pauses before some commands, which makes a missing event visible.
/// For tests.
class DelayingQueue final : public ThreadedQueue {
public:
    /// @param seed seed of the sequence of pauses
    /// @param longest longest pause in microseconds
    /// @param capacity as for `ThreadedQueue`
    /// @param when_full as for `ThreadedQueue`
    explicit DelayingQueue(std::uint64_t seed, unsigned longest = 200,
                           std::size_t capacity = default_capacity,
                           WhenFull when_full = WhenFull::throw_error)
        : ThreadedQueue(capacity, when_full), _state(seed * 2 + 1), _longest(longest) {}

    ~DelayingQueue() override;

private:
    void pause() override;

    std::uint64_t _state;
    unsigned _longest;
};

} // namespace ZERO_NAMESPACE::host

#if !defined(ZERO_COMPILED)
#include "detail/delaying_queue.ipp"
#endif
