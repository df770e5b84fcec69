#pragma once

#include "../core/detail/namespace.hpp"
#include "detail/float_control.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <type_traits>
#include <utility>

namespace ZERO_NAMESPACE::host {

/// @brief A small functor stored in place: the element type of a host queue.
class Command {
public:
    static constexpr std::size_t capacity = 112; ///< bytes of a functor

    Command() = default;

    /// @brief Copies the functor. Does not allocate.
    template <class F>
        requires(!std::is_same_v<F, Command>)
    explicit Command(F const& functor) noexcept {
        static_assert(
            std::is_trivially_copyable_v<F> && std::is_trivially_destructible_v<F>,
            "zero: a command is a trivially copyable functor; capture pointers and numbers.");
        static_assert(
            sizeof(F) <= capacity && alignof(F) <= 16,
            "zero: a command holds at most 112 bytes; put larger arguments behind a pointer.");
        ::new (static_cast<void*>(_storage)) F(functor);
        _call = [](void* storage) { (*std::launder(static_cast<F*>(storage)))(); };
    }

    /// @brief Returns whether it holds a functor.
    explicit operator bool() const noexcept { return _call != nullptr; }

    /// @brief Calls the functor, with the default floating-point control word: to nearest, and
    /// subnormal numbers are not flushed. Restores the control word of the thread. Undefined for
    /// a default-constructed command.
    void operator()() {
        detail::WithDefaultFloatControl const control;
        auto* call = _call;
#if defined(__GNUC__)
        __asm__("" : "+r"(call)); // not inlined, so no operation moves out of the scope
#endif
        call(_storage);
    }

private:
    alignas(16) std::byte _storage[capacity];
    void (*_call)(void*) = nullptr;
};

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

/// @brief A point in a queue. A default-constructed event is complete. Copying does not allocate;
/// an event may outlive its queue, whose progress it shares.
class Event {
public:
    Event() = default;

    /// @param progress the progress of the queue
    /// @param ticket the ticket of the last command before the point
    Event(std::shared_ptr<Progress> progress, std::uint64_t ticket) noexcept
        : _progress(std::move(progress)), _ticket(ticket) {}

    /// @brief Returns whether all commands before the point are done. Does not wait.
    [[nodiscard]] bool is_complete() const noexcept {
        return _progress == nullptr || _progress->has_reached(_ticket);
    }

    /// @brief Blocks the calling thread until the event is complete.
    void synchronise() const {
        if (_progress != nullptr) {
            _progress->wait(_ticket);
        }
    }

    /// @brief Rethrows the exception of a command of the event's queue, if there is one. The queue
    /// may already be destroyed.
    void rethrow_failure() const {
        if (_progress != nullptr) {
            _progress->rethrow_failure();
        }
    }

    /// @brief Returns whether this is a point in the queue with this progress.
    [[nodiscard]] bool is_of(Progress const* progress) const noexcept {
        return _progress.get() == progress;
    }

    /// @brief Returns whether this point is in the same queue as `other` and not after it.
    [[nodiscard]] bool is_not_after(Event const& other) const noexcept {
        return _progress == other._progress && _ticket <= other._ticket;
    }

private:
    std::shared_ptr<Progress> _progress;
    std::uint64_t _ticket = 0;
};

/// @brief Base of the host queues: commands run in the order in which they are enqueued, like those
/// of a CUDA stream. Enqueuing does not allocate.
///
/// Commands run with the default floating-point control word on every kind of queue, whatever the
/// program set on its threads. Only one thread at a time may enqueue. Commands enqueued after
/// `wait(event)` run after the event.
class Queue {
public:
    Queue() = default;
    Queue(Queue const&) = delete;
    Queue& operator=(Queue const&) = delete;
    virtual ~Queue() = default;

    /// @brief Copies the functor into the queue, which calls it once. @throws QueueFull if
    /// the queue is full and does not wait for room
    template <class F>
    void enqueue(F const& functor) {
        push(Command(functor));
    }

    /// @brief Returns the point after all commands enqueued so far.
    [[nodiscard]] virtual Event record() = 0;

    /// @brief Makes commands enqueued from now on run after the event.
    virtual void wait(Event const& event) = 0;

    /// @brief Rethrows the first exception of a command that ran on another thread. The commands
    /// after it were skipped.
    virtual void rethrow_failure() const = 0;

    /// @brief Blocks the calling thread until all commands enqueued so far are done.
    void synchronise() { record().synchronise(); }

private:
    virtual void push(Command command) = 0;
};

} // namespace ZERO_NAMESPACE::host

#if !defined(ZERO_COMPILED)
#include "detail/queue.ipp"
#endif
