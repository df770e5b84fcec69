#pragma once

#include "../core/detail/namespace.hpp"
#include "command.hpp"
#include "event.hpp"

namespace ZERO_NAMESPACE::host {

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
