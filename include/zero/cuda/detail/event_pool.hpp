#pragma once

#include "../../core/detail/namespace.hpp"
#include "check.hpp"

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::cuda::detail {

/// @brief An event of the runtime, and how many handles name it.
struct EventNode {
    cudaEvent_t event = nullptr;
    int device = 0;
    bool is_captured =
        false; ///< recorded on a stream that was being captured: a point in a graph, not in time
    std::atomic<std::size_t> handles{0};
    EventNode* next = nullptr; ///< of those that are free
};

/// @brief Events that nobody names any more, to be recorded again: so recording creates none once a
/// program is in its stride.
///
/// When the last event and the last `KeptEvents` of the process go, all are destroyed: nothing of
/// CUDA's outlives what uses it, and none waits for the end of the process. (That an event is
/// recorded anew while a stream still waits for its old point is legal: the stream waits for the
/// point of when it was told to.)
class EventPool {
public:
    static EventPool& instance() {
        static auto& pool =
            *new EventPool; // never destroyed: events may outlive other static objects
        return pool;
    }

    /// @brief A node with one handle, for the current device.
    [[nodiscard]] EventNode* take() {
        int device = 0;
        check(cudaGetDevice(&device), "cudaGetDevice");
        auto const index = static_cast<std::size_t>(device);
        std::lock_guard const lock(_mutex);
        if (_free.size() <= index) {
            _free.resize(index + 1, nullptr);
        }
        EventNode* node = _free[index];
        if (node != nullptr) {
            _free[index] = node->next;
        } else {
            node = make(device);
        }
        ++_users;
        node->handles.store(1, std::memory_order_relaxed);
        return node;
    }

    void give_back(EventNode* node) noexcept {
        std::lock_guard const lock(_mutex);
        EventNode*& first = _free[static_cast<std::size_t>(node->device)];
        node->next = first;
        first = node;
        drop_user();
    }

    void keep() noexcept {
        std::lock_guard const lock(_mutex);
        ++_users;
    }

    void keep_no_more() noexcept {
        std::lock_guard const lock(_mutex);
        drop_user();
    }

private:
    static EventNode* make(int device) {
        cudaEvent_t event = nullptr;
        check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
        try {
            auto* const node = new EventNode;
            node->event = event;
            node->device = device;
            return node;
        } catch (...) {
            ignore(cudaEventDestroy(event));
            throw;
        }
    }

    void drop_user() noexcept {
        if (--_users != 0) {
            return;
        }
        for (EventNode*& first : _free) {
            while (first != nullptr) {
                EventNode* const node = std::exchange(first, first->next);
                ignore(cudaEventDestroy(node->event));
                delete node;
            }
        }
    }

    std::mutex _mutex;
    std::vector<EventNode*> _free; ///< by device
    std::size_t _users = 0;        ///< events, and those who want free ones to be kept
};

/// @brief While one lives, events that nobody names any more are kept to be recorded again. Each of
/// an engine's tables has one: an engine itself may name no event between two steps.
class KeptEvents {
public:
    KeptEvents() noexcept { EventPool::instance().keep(); }
    KeptEvents(KeptEvents const&) noexcept : KeptEvents() {}
    KeptEvents& operator=(KeptEvents const&) noexcept = default;
    ~KeptEvents() { EventPool::instance().keep_no_more(); }
};

} // namespace ZERO_NAMESPACE::cuda::detail
