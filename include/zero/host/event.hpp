#pragma once

#include "../core/detail/namespace.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace ZERO_NAMESPACE::host {

/// @brief How often a thread gives way to others before it sleeps. Few: with more threads than
/// cores, spinning takes the time of those waited for.
inline constexpr int spins_before_sleep = 8;

/// @brief How far a queue has come: tickets up to `completed` are done. Outlives its queue, so that
/// an event can be asked at any time.
class Progress {
public:
    /// @brief Whether the command with this ticket, and all before it, are done.
    [[nodiscard]] bool has_reached(std::uint64_t ticket) const noexcept {
        return _completed.load(std::memory_order_acquire) >= ticket;
    }

    /// @brief Called by the worker, with growing tickets.
    void set(std::uint64_t ticket) {
        _completed.store(ticket, std::memory_order_seq_cst);
        if (_waiters.load(std::memory_order_seq_cst) != 0) {
            {
                std::lock_guard const lock(_mutex);
            }
            _changed.notify_all();
        }
    }

    /// @brief Waits on the calling thread until `has_reached`.
    void wait(std::uint64_t ticket) {
        for (int spin = 0; spin < spins_before_sleep; ++spin) {
            if (has_reached(ticket)) {
                return;
            }
            std::this_thread::yield();
        }
        std::unique_lock lock(_mutex);
        _waiters.fetch_add(1, std::memory_order_seq_cst);
        _changed.wait(lock, [&] { return _completed.load(std::memory_order_seq_cst) >= ticket; });
        _waiters.fetch_sub(1, std::memory_order_relaxed);
    }

    /// @brief Called by the worker, once: a command threw.
    void fail(std::exception_ptr failure) {
        _failure = std::move(failure);
        _has_failed.store(true, std::memory_order_release);
    }

    /// @brief Whether a command threw.
    [[nodiscard]] bool has_failed() const noexcept {
        return _has_failed.load(std::memory_order_acquire);
    }

    /// @brief Throws what a command threw, if one did.
    void rethrow_failure() const {
        if (has_failed()) {
            std::rethrow_exception(_failure);
        }
    }

private:
    std::atomic<std::uint64_t> _completed{0};
    std::atomic<bool> _has_failed{false};
    std::exception_ptr _failure;
    std::atomic<int> _waiters{0};
    std::mutex _mutex;
    std::condition_variable _changed;
};

/// @brief A point in a queue. A default-constructed event is complete. Copying allocates nothing;
/// an event may outlive its queue.
class Event {
public:
    Event() = default;

    /// @param ticket of the last command before the point
    Event(std::shared_ptr<Progress> progress, std::uint64_t ticket) noexcept
        : _progress(std::move(progress)), _ticket(ticket) {}

    /// @brief Whether all commands before the point are done; does not wait.
    [[nodiscard]] bool is_complete() const noexcept {
        return _progress == nullptr || _progress->has_reached(_ticket);
    }

    /// @brief Waits on the calling thread.
    void synchronise() const {
        if (_progress != nullptr) {
            _progress->wait(_ticket);
        }
    }

    /// @brief Throws what a command of its queue threw, if one did. The queue may be gone.
    void rethrow_failure() const {
        if (_progress != nullptr) {
            _progress->rethrow_failure();
        }
    }

    /// @brief Is it a point in the queue with this progress?
    [[nodiscard]] bool is_of(Progress const* progress) const noexcept {
        return _progress.get() == progress;
    }

private:
    std::shared_ptr<Progress> _progress;
    std::uint64_t _ticket = 0;
};

} // namespace ZERO_NAMESPACE::host
