#pragma once

#include <zero/cuda/backend.cuh>

#include <barrier>

// Several ranks of NCCL on a device, as threads. There no rank may wait for the whole device while
// the kernel of another waits for it, and allocations may do so.
namespace zero::test {

using Meeting = std::barrier<>;

/// The backend of devices. The ranks meet when all of them have allocated the memory of their
/// engines, and before the first collective.
struct MeetingBackend : cuda::Backend {
    static Meeting*& meeting() { // of this thread
        static thread_local Meeting* own = nullptr;
        return own;
    }
    static void require_arithmetic(Queue queue) {
        cuda::Backend::require_arithmetic(queue);
        meeting()->arrive_and_wait();
    }
};

} // namespace zero::test
