#pragma once

#include "../threaded_queue.hpp"

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../../core/host_memory_resource.hpp"

#include <cstdio>
#include <exception>
#include <new>
#include <string>

#ifdef __linux__
#include <sched.h>
#endif

namespace ZERO_NAMESPACE::host {

namespace detail {

/// Returns a number from a file; 0 if it begins with none, as "max" does, or cannot be read.
/// @param skipped numbers before it
ZERO_COLD_INLINE double number_in(std::string const& path, int skipped) {
    double number = 0;
    if (std::FILE* const file = std::fopen(path.c_str(), "re"); file != nullptr) {
        for (int read = 0; read <= skipped; ++read) {
            number = std::fscanf(file, "%lf", &number) == 1 ? number : 0;
        }
        std::fclose(file);
    }
    return number;
}

ZERO_COLD_INLINE double granted_cores(std::string const& root, std::string const& line,
                                      double cores) {
    std::size_t const controllers = line.find(':') + 1; // 0: there is none
    std::size_t const path = line.find(":/", controllers);
    if (controllers == 0 || path == std::string::npos) {
        return cores;
    }
    bool const is_new = path == controllers;
    std::string const listed = "," + line.substr(controllers, path - controllers) + ",";
    if (!is_new && listed.find(",cpu,") == std::string::npos) {
        return cores;
    }
    for (std::string group = line.substr(path + 1);; group.resize(group.rfind('/'))) {
        std::string folder = root;
        folder += is_new ? "" : "/cpu";
        folder += group;
        double const quota = number_in(folder + (is_new ? "/cpu.max" : "/cpu.cfs_quota_us"), 0);
        double const period = is_new ? number_in(folder + "/cpu.max", 1)
                                     : number_in(folder + "/cpu.cfs_period_us", 0);
        cores = quota > 0 && period > 0 ? zero::detail::smaller(cores, quota / period) : cores;
        if (group.empty()) {
            return cores;
        }
    }
}

} // namespace detail

ZERO_COLD_INLINE std::size_t available_cores() {
    double cores = std::thread::hardware_concurrency();
#ifdef __linux__
    if (cpu_set_t set; sched_getaffinity(0, sizeof set, &set) == 0) {
        cores = CPU_COUNT(&set);
    }
    if (std::FILE* const file = std::fopen("/proc/self/cgroup", "re"); file != nullptr) {
        for (char line[4096]; std::fscanf(file, " %4095[^\n]", line) == 1;) {
            cores = detail::granted_cores("/sys/fs/cgroup", line, cores);
        }
        std::fclose(file);
    }
#endif
    return zero::detail::larger<std::size_t>(static_cast<std::size_t>(cores), 1);
}

ZERO_INLINE MemoryResource& ThreadedQueue::default_memory() noexcept {
    static HostMemoryResource memory;
    return memory;
}

ZERO_INLINE ThreadedQueue::ThreadedQueue(std::size_t capacity, WhenFull when_full, Command pause)
    : ThreadedQueue(capacity, when_full, default_memory(), pause) {}

ZERO_INLINE ThreadedQueue::ThreadedQueue(std::size_t capacity, WhenFull when_full,
                                         MemoryResource& memory, Threadless)
    : _storage(memory, capacity, BufferKind::commands),
      _ring(reinterpret_cast<Entry*>(_storage.data())), _when_full(when_full),
      _progress(std::make_shared<Progress>()) {
    if (capacity == 0) {
        zero::detail::throw_error<InvalidArgument>(
            {"zero: a queue of capacity 0 takes no command."});
    }
}

ZERO_INLINE ThreadedQueue::ThreadedQueue(std::size_t capacity, WhenFull when_full,
                                         MemoryResource& memory, Command pause)
    : ThreadedQueue(capacity, when_full, memory, Threadless()) {
    _pause = pause;
    for (std::size_t place = 0; place < capacity; ++place) {
        ::new (static_cast<void*>(_ring + place)) Entry;
    }
    _worker = std::thread([this] { work(); });
}

ZERO_INLINE ThreadedQueue::~ThreadedQueue() {
    if (!has_thread()) {
        return;
    }
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
