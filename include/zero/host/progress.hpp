#pragma once

#include "../core/detail/namespace.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>

namespace ZERO_NAMESPACE::host {

/// @brief The progress of a queue: commands with tickets up to `completed` are done. Shared by the
/// queue and its events, so events stay valid after the queue is destroyed.
class Progress {
public:
    /// @brief The number of times a thread yields before it sleeps. Small, because with more
    /// threads than cores spinning takes time from the threads being waited for.
    static constexpr int spins_before_sleep = 8;

    /// @brief Returns whether the command with this ticket and all commands before it are done.
    [[nodiscard]] bool has_reached(std::uint64_t ticket) const noexcept {
        return _completed.load(std::memory_order_acquire) >= ticket;
    }

    /// @brief Marks commands up to `ticket` as done. Called by the worker, with increasing tickets.
    void set(std::uint64_t ticket);

    /// @brief Blocks the calling thread until `has_reached(ticket)`.
    void wait(std::uint64_t ticket);

    /// @brief Stores the exception of a command. Called by the worker, at most once.
    void fail(std::exception_ptr failure);

    /// @brief Returns whether a command threw.
    [[nodiscard]] bool has_failed() const noexcept {
        return _has_failed.load(std::memory_order_acquire);
    }

    /// @brief Rethrows the exception of a command, if there is one.
    void rethrow_failure() const;

private:
    static constexpr std::uint64_t none = ~std::uint64_t{0};

    std::atomic<std::uint64_t> _completed{0};
    std::atomic<bool> _has_failed{false};
    std::exception_ptr _failure;
    std::atomic<std::uint64_t> _awaited{none}; ///< the earliest ticket for which a thread sleeps
    std::mutex _mutex;
    std::condition_variable _changed;
};

} // namespace ZERO_NAMESPACE::host

#if !defined(ZERO_COMPILED)
#include "detail/progress.ipp"
#endif
