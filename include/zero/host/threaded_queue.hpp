#pragma once

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/error.hpp"
#include "event.hpp"
#include "queue.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

namespace ZERO_NAMESPACE::host {

/// @brief A fixed ring of commands and one worker that runs them.
///
/// A command that throws: the exception is kept for `rethrow_failure`, the commands after it are
/// skipped, and events complete all the same, so that nobody waits for ever. The destructor runs
/// what is enqueued and joins.
class ThreadedQueue : public Queue {
public:
    static constexpr std::size_t default_capacity = 8192; ///< commands, of 160 bytes each

    /// @brief Starts the worker. @param capacity commands that may be on the way, at least 1
    /// @throws InvalidArgument
    explicit ThreadedQueue(std::size_t capacity = default_capacity)
        : _ring(capacity), _progress(std::make_shared<Progress>()) {
        if (capacity == 0) {
            zero::detail::throw_error<InvalidArgument>(
                {"zero: a queue of capacity 0 takes no command."});
        }
        _worker = std::thread([this] { work(); });
    }

    ~ThreadedQueue() override { stop(); }

    [[nodiscard]] Event record() override {
        return {_progress, _head.load(std::memory_order_relaxed)};
    }

    /// @throws QueueFull
    void wait(Event const& event) override {
        if (!event.is_complete() && !event.is_of(_progress.get())) {
            Entry& entry = reserve();
            entry.awaited = event;
            entry.is_wait = true;
            publish();
        }
    }

    void rethrow_failure() const override { _progress->rethrow_failure(); }

protected:
    /// @brief Runs everything and joins; a class that overrides `pause` calls it in its destructor.
    void stop() noexcept {
        if (_worker.joinable()) {
            {
                std::lock_guard const lock(_mutex);
                _is_stopping = true;
            }
            _enqueued.notify_one();
            _worker.join();
        }
    }

private:
    struct Entry {
        Command command;
        Event awaited;
        bool is_wait = false;
    };

    /// Called on the worker before each command.
    virtual void pause() {}

    void push(Command command) override {
        Entry& entry = reserve();
        entry.command = command;
        entry.is_wait = false;
        publish();
    }

    Entry& reserve() {
        std::uint64_t const head = _head.load(std::memory_order_relaxed);
        if (!_progress->has_reached(head + 1 > _ring.size() ? head + 1 - _ring.size() : 0)) {
            zero::detail::throw_error<QueueFull>(
                {"zero: a queue has no room for a further command; its capacity is ", _ring.size(),
                 ". Make it with a larger one, or wait for an event now and then."});
        }
        return _ring[head % _ring.size()];
    }

    void publish() {
        _head.fetch_add(1, std::memory_order_seq_cst);
        if (_is_asleep.load(std::memory_order_seq_cst)) {
            {
                std::lock_guard const lock(_mutex);
            }
            _enqueued.notify_one();
        }
    }

    void work() {
        for (std::uint64_t next = 0;; ++next) {
            if (!await_command(next)) {
                return;
            }
            Entry& entry = _ring[next % _ring.size()];
            run(entry);
            _progress->set(next + 1);
        }
    }

    bool await_command(std::uint64_t next) {
        for (int spin = 0; spin < spins_before_sleep; ++spin) {
            if (_head.load(std::memory_order_acquire) > next) {
                return true;
            }
            std::this_thread::yield();
        }
        std::unique_lock lock(_mutex);
        _is_asleep.store(true, std::memory_order_seq_cst);
        _enqueued.wait(
            lock, [&] { return _head.load(std::memory_order_seq_cst) > next || _is_stopping; });
        _is_asleep.store(false, std::memory_order_relaxed);
        return _head.load(std::memory_order_acquire) > next;
    }

    void run(Entry& entry) {
        if (entry.is_wait) {
            entry.awaited.synchronise();
            entry.awaited = Event();
            return;
        }
        if (_progress->has_failed()) {
            return;
        }
        try {
            pause();
            entry.command();
        } catch (...) {
            _progress->fail(std::current_exception());
        }
    }

    zero::detail::List<Entry> _ring;
    std::shared_ptr<Progress> _progress;
    std::atomic<std::uint64_t> _head{0};
    std::atomic<bool> _is_asleep{false};
    std::mutex _mutex;
    std::condition_variable _enqueued;
    bool _is_stopping = false;
    std::thread _worker;
};

} // namespace ZERO_NAMESPACE::host
