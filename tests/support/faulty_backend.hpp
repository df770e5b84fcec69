#pragma once

#include <zero/host/host_backend.hpp>
#include <zero/host/queue.hpp>

#include <atomic>
#include <cstddef>
#include <stdexcept>

namespace zero::test {

/// A backend whose sums fail on one queue.
struct FaultyBackend : HostBackend {
    inline static std::atomic<host::Queue*> failing_queue{nullptr};

    template <class T>
    static void sum_ranks(Queue queue, T* out, T const* const* peers, int world,
                          std::size_t elements) {
        if (queue == failing_queue) {
            throw std::runtime_error("the sum failed");
        }
        HostBackend::sum_ranks(queue, out, peers, world, elements);
    }
};

} // namespace zero::test
