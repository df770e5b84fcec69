#pragma once

#include "../threaded_queue.hpp"

#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../../core/host_memory_resource.hpp"

#include <exception>
#include <new>

namespace ZERO_NAMESPACE::host {

ZERO_INLINE MemoryResource& ThreadedQueue::default_memory() noexcept {
    static HostMemoryResource memory;
    return memory;
}

ZERO_INLINE ThreadedQueue::ThreadedQueue(std::size_t capacity, WhenFull when_full, Command pause)
    : ThreadedQueue(capacity, when_full, default_memory(), pause) {}

ZERO_INLINE ThreadedQueue::ThreadedQueue(std::size_t capacity, WhenFull when_full,
                                         MemoryResource& memory, Command pause)
    : _storage(memory, capacity, BufferKind::commands),
      _ring(reinterpret_cast<Entry*>(_storage.data())), _when_full(when_full), _pause(pause),
      _progress(std::make_shared<Progress>()) {
    if (capacity == 0) {
        zero::detail::throw_error<InvalidArgument>(
            {"zero: a queue of capacity 0 takes no command."});
    }
    for (std::size_t place = 0; place < capacity; ++place) {
        ::new (static_cast<void*>(_ring + place)) Entry;
    }
    _worker = std::thread([this] { work(); });
}

ZERO_INLINE ThreadedQueue::~ThreadedQueue() {
    {
        std::lock_guard const lock(_mutex);
        _is_stopping = true;
    }
    _enqueued.notify_one();
    _worker.join();
}

ZERO_INLINE void ThreadedQueue::wait(Event const& event) {
    if (!event.is_complete() && !event.is_of(_progress.get())
        && !event.is_not_after(_last_awaited)) {
        Entry& entry = reserve();
        entry.awaited = event;
        entry.is_wait = true;
        publish();
        _last_awaited = event;
    }
}

ZERO_INLINE void ThreadedQueue::push(Command command) {
    Entry& entry = reserve();
    entry.command = command;
    entry.is_wait = false;
    publish();
}

ZERO_INLINE ThreadedQueue::Entry& ThreadedQueue::reserve() {
    std::uint64_t const head = _head.load(std::memory_order_relaxed);
    std::uint64_t const oldest = head + 1 > _storage.size() ? head + 1 - _storage.size() : 0;
    if (!_progress->has_reached(oldest)) {
        if (_when_full == WhenFull::throw_error) {
            zero::detail::throw_error<QueueFull>(
                {"zero: a queue has no room for another command; its capacity is ", _storage.size(),
                 ". Construct it with a larger capacity or with host::WhenFull::wait, or wait for "
                 "an event from time to time."});
        }
        // more than one entry, so that the two threads do not take turns for every command
        _progress->wait(oldest + _storage.size() / 4);
    }
    return _ring[head % _storage.size()];
}

ZERO_INLINE void ThreadedQueue::publish() {
    _head.fetch_add(1, std::memory_order_seq_cst);
    if (_is_asleep.load(std::memory_order_seq_cst)) {
        {
            std::lock_guard const lock(_mutex);
        }
        _enqueued.notify_one();
    }
}

ZERO_INLINE void ThreadedQueue::work() {
    for (std::uint64_t next = 0;; ++next) {
        if (!await_command(next)) {
            return;
        }
        Entry& entry = _ring[next % _storage.size()];
        run(entry);
        _progress->set(next + 1);
    }
}

ZERO_INLINE bool ThreadedQueue::await_command(std::uint64_t next) {
    for (int spin = 0; spin < Progress::spins_before_sleep; ++spin) {
        if (_head.load(std::memory_order_acquire) > next) {
            return true;
        }
        std::this_thread::yield();
    }
    std::unique_lock lock(_mutex);
    _is_asleep.store(true, std::memory_order_seq_cst);
    _enqueued.wait(lock,
                   [&] { return _head.load(std::memory_order_seq_cst) > next || _is_stopping; });
    _is_asleep.store(false, std::memory_order_relaxed);
    return _head.load(std::memory_order_acquire) > next;
}

ZERO_INLINE void ThreadedQueue::run(Entry& entry) {
    if (entry.is_wait) {
        entry.awaited.synchronise();
        entry.awaited = Event();
        return;
    }
    if (_progress->has_failed()) {
        return;
    }
    try {
        if (_pause) {
            _pause();
        }
        entry.command();
    } catch (...) {
        _progress->fail(std::current_exception());
    }
}

} // namespace ZERO_NAMESPACE::host
