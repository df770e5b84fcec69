#pragma once

#include "../../../core/detail/namespace.hpp"
#include "check.hpp"
#include "clean_up.hpp"

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::cuda::detail {

/// @brief A pooled CUDA event and its reference count. `Event` shares it.
struct EventNode {
    cudaEvent_t event = nullptr;
    int device = 0;
    bool is_captured = false; ///< recorded during a capture: a point in a graph, not in time
    std::atomic<std::size_t> handles{0};
    EventNode* next = nullptr; ///< next free node of the device
};

/// @brief Owns the CUDA events of the process, and a stream per device for `SideStream`.
/// Unreferenced events are recorded again, so a program in its steady state creates none.
///
/// All of them are destroyed together with the last `Event`, `KeptEvents` and `SideStream` of the
/// process: no CUDA object outlives its users or is left to the end of the process. An event may be
/// recorded again while a stream still waits for its old point: the stream keeps waiting for that
/// point.
class EventPool {
public:
    static EventPool& instance() {
        static auto& pool =
            *new EventPool; // never destroyed, because events may outlive other static objects
        return pool;
    }

    /// @brief Returns a node with one reference, for the current device. @throws CudaError
    [[nodiscard]] EventNode* take() {
        int const device = current_device();
        std::lock_guard const lock(_mutex);
        EventNode*& first = of_device(_free, device);
        EventNode* node = first;
        if (node != nullptr) {
            first = node->next;
        } else {
            node = make(device);
        }
        ++_users;
        node->handles.store(1, std::memory_order_relaxed);
        return node;
    }

    /// @brief Returns the stream of the current device. The caller keeps the pool. @throws
    /// CudaError
    [[nodiscard]] cudaStream_t side_stream() {
        int const device = current_device();
        std::lock_guard const lock(_mutex);
        cudaStream_t& stream = of_device(_streams, device);
        if (stream == nullptr) {
            check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                  "cudaStreamCreateWithFlags");
        }
        return stream;
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
    /// Returns the entry of a device; null at first.
    template <class Handle>
    static Handle& of_device(std::vector<Handle>& entries, int device) {
        auto const index = static_cast<std::size_t>(device);
        if (entries.size() <= index) {
            entries.resize(index + 1, nullptr);
        }
        return entries[index];
    }

    static EventNode* make(int device) {
        cudaEvent_t event = nullptr;
        check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
        try {
            auto* const node = new EventNode;
            node->event = event;
            node->device = device;
            return node;
        } catch (...) {
            CleanUp().check(cudaEventDestroy(event), "cudaEventDestroy");
            throw;
        }
    }

    void drop_user() noexcept {
        if (--_users != 0) {
            return;
        }
        for (EventNode*& first : _free) {
            if (first == nullptr) {
                continue;
            }
            CleanUp clean_up(first->device);
            while (first != nullptr) {
                EventNode* const node = std::exchange(first, first->next);
                clean_up.check(cudaEventDestroy(node->event), "cudaEventDestroy");
                delete node;
            }
        }
        for (std::size_t device = 0; device < _streams.size(); ++device) {
            if (cudaStream_t const stream = std::exchange(_streams[device], nullptr);
                stream != nullptr) {
                CleanUp clean_up(static_cast<int>(device));
                clean_up.check(cudaStreamDestroy(stream), "cudaStreamDestroy");
            }
        }
    }

    std::mutex _mutex;
    std::vector<EventNode*> _free;      ///< first free node per device
    std::vector<cudaStream_t> _streams; ///< per device, or null
    std::size_t _users = 0; ///< references by events, by `KeptEvents` and by `SideStream`
};

/// @brief While an object lives, the pool keeps unreferenced events for reuse. Each slice table of
/// an engine has one, because an engine itself may reference no event between two steps.
class KeptEvents {
public:
    KeptEvents() noexcept { EventPool::instance().keep(); }
    KeptEvents(KeptEvents const&) noexcept : KeptEvents() {}
    KeptEvents& operator=(KeptEvents const&) noexcept = default;
    ~KeptEvents() { EventPool::instance().keep_no_more(); }
};

/// @brief A stream of the current device on which the library reads, allocates and marks times.
///
/// All threads share it, and it never has long work. Unlike `cudaStreamPerThread` it does not wait
/// for the legacy stream, which may hold the work of several steps: LibTorch computes there.
class SideStream {
public:
    /// @throws CudaError
    SideStream() : _stream(EventPool::instance().side_stream()) {}
    [[nodiscard]] cudaStream_t get() const noexcept { return _stream; }

private:
    KeptEvents _keeps_pool; // first: the pool must not destroy the stream
    cudaStream_t _stream;
};

} // namespace ZERO_NAMESPACE::cuda::detail
