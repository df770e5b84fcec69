#pragma once

#include "../core/buffer.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/memory_resource.hpp"
#include "queue.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace ZERO_NAMESPACE::host {

namespace detail {

/// @brief Returns the least number of cores that a control group and those around it grant, at most
/// `cores`.
/// @param root folder of all groups
/// @param line of /proc/self/cgroup: "0::/path" (version 2) or "4:cpu,cpuacct:/path" (version 1)
[[nodiscard]] double granted_cores(std::string const& root, std::string const& line, double cores);

} // namespace detail

/// @brief Returns the number of cores that the calling thread may use: those of its affinity, and
/// not more than the processor time that its control groups grant, rounded down. Reads files.
/// At least 1.
[[nodiscard]] std::size_t available_cores();

/// @brief The response of a full queue to another command.
enum class WhenFull : std::uint8_t {
    throw_error, ///< throws QueueFull; the command is not enqueued
    wait         ///< blocks the thread until a quarter of the queue is free
};

/// @brief A fixed ring of commands and one worker thread that runs them. Owns both.
///
/// When a command throws, the exception is kept for `rethrow_failure` and the commands after it are
/// skipped. Events still complete, so no thread waits for ever. The destructor runs the enqueued
/// commands and joins the worker.
///
/// Under `WhenFull::wait` a full queue blocks the thread that enqueues. That cannot deadlock while
/// the commands themselves do not wait for that thread: a queue waits for an event only after the
/// event was recorded, so each command depends only on commands that were enqueued before it, on
/// whatever queue. The oldest command that is not done can therefore always run, and the queue
/// becomes free. A command that blocks until the enqueuing thread does something later, such as
/// opening a gate, breaks that rule.
class ThreadedQueue : public Queue {
public:
    static constexpr std::size_t default_capacity = 8192; ///< commands, 160 bytes each

    /// @brief Starts the worker.
    /// @param capacity maximum number of pending commands, at least 1
    /// @param when_full what `enqueue` and `wait` do when that many are pending
    /// @param pause called on the worker before each command; an empty one is not
    /// @throws InvalidArgument if the capacity is 0
    explicit ThreadedQueue(std::size_t capacity = default_capacity,
                           WhenFull when_full = WhenFull::throw_error, Command pause = {});

    /// @brief As above, with the ring in memory of the resource, which must outlive the queue.
    ThreadedQueue(std::size_t capacity, WhenFull when_full, MemoryResource& memory,
                  Command pause = {});

    ~ThreadedQueue() override;

    [[nodiscard]] Event record() override {
        return {_progress, _head.load(std::memory_order_relaxed)};
    }

    /// @brief Takes no room if the event is complete, is one of this queue, or does not come after
    /// the one that was passed last. @throws QueueFull
    void wait(Event const& event) override;

    void rethrow_failure() const override { _progress->rethrow_failure(); }

    /// @brief Returns whether a worker runs the commands; see `ThreadlessQueue`.
    [[nodiscard]] bool has_thread() const noexcept { return _worker.joinable(); }

    /// @brief Size of the ring in bytes.
    [[nodiscard]] std::size_t size_bytes() const noexcept { return _storage.size_bytes(); }

protected:
    /// Starts no worker. The derived class runs the commands.
    struct Threadless {};
    /// @brief Starts no worker.
    ThreadedQueue(std::size_t capacity, WhenFull when_full, MemoryResource& memory, Threadless);

private:
    struct Entry {
        Command command;
        Event awaited;
        bool is_wait = false;
    };

    /// Memory of one entry.
    struct Room {
        alignas(Entry) std::byte bytes[sizeof(Entry)];
    };

    static MemoryResource& default_memory() noexcept;

    void push(Command command) override;
    Entry& reserve();
    void publish();
    void work();
    bool await_command(std::uint64_t next);
    void run(Entry& entry);

    Buffer<Room> _storage;
    Entry* _ring; ///< in the storage; not destroyed, since an entry that ran owns nothing
    WhenFull _when_full;
    Command _pause; ///< no virtual function: the worker runs while derived classes begin and end
    Event _last_awaited;
    std::shared_ptr<Progress> _progress;
    std::atomic<std::uint64_t> _head{0};
    std::atomic<bool> _is_asleep{false};
    std::mutex _mutex;
    std::condition_variable _enqueued;
    bool _is_stopping = false;
    std::thread _worker;
};

/// @brief A threaded queue that waits for room instead of throwing QueueFull. An engine creates one
/// for its communication.
class WaitingQueue : public ThreadedQueue {
public:
    /// @param capacity as for `ThreadedQueue`
    explicit WaitingQueue(std::size_t capacity = default_capacity)
        : ThreadedQueue(capacity, WhenFull::wait) {}

    /// @param capacity as for `ThreadedQueue`
    /// @param memory where the ring of commands is; must outlive the queue
    WaitingQueue(std::size_t capacity, MemoryResource& memory)
        : ThreadedQueue(capacity, WhenFull::wait, memory) {}

protected:
    /// @brief Starts no worker.
    WaitingQueue(std::size_t capacity, MemoryResource& memory, Threadless threadless)
        : ThreadedQueue(capacity, WhenFull::wait, memory, threadless) {}
};

/// @brief A queue with the memory of a `WaitingQueue` and no thread: it runs each command at once,
/// as `InlineQueue` does. An engine creates one where a thread would have no core, so that its
/// memory plan does not depend on the machine.
class ThreadlessQueue final : public WaitingQueue {
public:
    /// @brief As for `WaitingQueue`. The ring is not touched.
    ThreadlessQueue(std::size_t capacity, MemoryResource& memory)
        : WaitingQueue(capacity, memory, Threadless()) {}

    [[nodiscard]] Event record() override { return {}; }

    /// @brief Blocks the calling thread until the event is complete.
    void wait(Event const& event) override { event.synchronise(); }

private:
    void push(Command command) override { command(); }
};

} // namespace ZERO_NAMESPACE::host

#if !defined(ZERO_COMPILED)
#include "detail/threaded_queue.ipp"
#endif
