#pragma once

#include "../core/detail/namespace.hpp"
#include "threaded_queue.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>

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
        : ThreadedQueue(capacity, when_full, Command(Pause{seed * 2 + 1, longest})) {}

private:
    struct Pause {
        void operator()() {
            state = state * 6364136223846793005U + 1442695040888963407U;
            auto const random = static_cast<unsigned>(state >> 33U);
            if (random % 4 == 0) {
                std::this_thread::sleep_for(std::chrono::microseconds(random / 4 % (longest + 1)));
            }
        }

        std::uint64_t state;
        unsigned longest;
    };
};

} // namespace ZERO_NAMESPACE::host
