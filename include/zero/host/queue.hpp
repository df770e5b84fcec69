#pragma once

#include "../core/detail/namespace.hpp"
#include "command.hpp"
#include "progress.hpp"

#include <cstdint>
#include <memory>
#include <utility>

namespace ZERO_NAMESPACE::host {

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
