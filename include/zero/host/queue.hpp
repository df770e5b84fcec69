#pragma once

#include "../core/detail/namespace.hpp"
#include "event.hpp"

#include <cstddef>
#include <type_traits>

namespace ZERO_NAMESPACE::host {

/// @brief A small functor, stored in place.
class Command {
public:
    static constexpr std::size_t capacity = 112; ///< bytes of a functor

    Command() = default;

    /// @brief Copies the functor; allocates nothing.
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

    /// @brief Calls it; there must be one.
    void operator()() { _call(_storage); }

private:
    alignas(16) std::byte _storage[capacity];
    void (*_call)(void*) = nullptr;
};

/// @brief Commands that run in the order in which they were enqueued, like those of a CUDA stream.
/// Enqueuing allocates nothing.
///
/// Only one thread at a time may enqueue. What is enqueued after `wait(event)` runs after the
/// event.
class Queue {
public:
    Queue() = default;
    Queue(Queue const&) = delete;
    Queue& operator=(Queue const&) = delete;
    virtual ~Queue() = default;

    /// @brief Copies the functor into the queue, where it is called once. @throws QueueFull
    template <class F>
    void enqueue(F const& functor) {
        push(Command(functor));
    }

    /// @brief The point after all commands so far.
    [[nodiscard]] virtual Event record() = 0;

    /// @brief What is enqueued after this runs after the event.
    virtual void wait(Event const& event) = 0;

    /// @brief Throws the first exception of a command that ran on another thread. The commands
    /// after it were skipped.
    virtual void rethrow_failure() const = 0;

    /// @brief Waits on the calling thread for all commands so far.
    void synchronise() { record().synchronise(); }

private:
    virtual void push(Command command) = 0;
};

} // namespace ZERO_NAMESPACE::host
