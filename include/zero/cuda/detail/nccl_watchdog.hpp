#pragma once

#include "../../core/detail/namespace.hpp"
#include "../nccl_system.hpp"

#include <condition_variable>
#include <mutex>
#include <thread>

namespace ZERO_NAMESPACE::cuda::detail {

/// @brief Owns a thread that calls a function at an interval until it is destroyed.
class NcclWatchdog {
public:
    using Duration = NcclSystem::Duration;

    NcclWatchdog() = default;
    NcclWatchdog(NcclWatchdog const&) = delete;
    NcclWatchdog& operator=(NcclWatchdog const&) = delete;
    ~NcclWatchdog() { stop(); }

    /// @param device the device of the thread: on another one, the queries would create a CUDA
    /// context there
    void start(NcclSystem& system, int device, Duration interval, void (*look)(void*),
               void* argument) {
        _thread = std::thread([this, &system, device, interval, look, argument] {
            // A failure is ignored: it recurs in a call that can report it.
            static_cast<void>(system.set_device(device));
            std::unique_lock lock(_mutex);
            while (!_wake.wait_for(lock, interval, [this] { return _is_stopping; })) {
                lock.unlock();
                look(argument);
                lock.lock();
            }
        });
    }

    void stop() noexcept {
        if (!_thread.joinable()) {
            return;
        }
        {
            std::lock_guard const lock(_mutex);
            _is_stopping = true;
        }
        _wake.notify_all();
        _thread.join();
    }

private:
    std::mutex _mutex;
    std::condition_variable _wake;
    bool _is_stopping = false;
    std::thread _thread;
};

} // namespace ZERO_NAMESPACE::cuda::detail
