#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

namespace ZERO_NAMESPACE::detail {

/// @brief Runs work that waits for files on a thread of its own. `on_files` uses it.
class FileThread {
public:
    /// @brief Starts the work, or does it here if the system has no thread.
    /// @param work must not throw, and must outlive this object
    explicit FileThread(FunctionRef<> work) {
        try {
            _thread = std::thread([this, work] {
                work();
                {
                    std::lock_guard const lock(_mutex);
                    _is_done = true;
                }
                _done.notify_one();
            });
        } catch (std::exception const&) {
            work();
            _is_done = true;
        }
    }
    FileThread(FileThread const&) = delete;
    FileThread& operator=(FileThread const&) = delete;

    /// @brief Waits until the work is done.
    ~FileThread() {
        if (_thread.joinable()) {
            _thread.join();
        }
    }

    /// @brief Waits for the work, and returns whether it is done.
    [[nodiscard]] bool wait_for(std::chrono::milliseconds time) {
        std::unique_lock lock(_mutex);
        return _done.wait_for(lock, time, [&] { return _is_done; });
    }

private:
    std::mutex _mutex;
    std::condition_variable _done;
    bool _is_done = false;
    std::thread _thread;
};

} // namespace ZERO_NAMESPACE::detail
