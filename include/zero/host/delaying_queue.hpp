#pragma once

#include "../core/detail/namespace.hpp"
#include "threaded_queue.hpp"

#include <chrono>
#include <cstdint>

namespace ZERO_NAMESPACE::host {

/// @brief A threaded queue that pauses before some commands, so that a missing event shows. For
/// tests.
class DelayingQueue final : public ThreadedQueue {
public:
    /// @param seed of the sequence of pauses
    /// @param longest pause in microseconds
    explicit DelayingQueue(std::uint64_t seed, unsigned longest = 200,
                           std::size_t capacity = default_capacity)
        : ThreadedQueue(capacity), _state(seed * 2 + 1), _longest(longest) {}

    ~DelayingQueue() override { stop(); }

private:
    void pause() override {
        _state = _state * 6364136223846793005U + 1442695040888963407U;
        auto const random = static_cast<unsigned>(_state >> 33U);
        if (random % 4 == 0) {
            std::this_thread::sleep_for(std::chrono::microseconds(random / 4 % (_longest + 1)));
        }
    }

    std::uint64_t _state;
    unsigned _longest;
};

} // namespace ZERO_NAMESPACE::host
