#pragma once

// A fake NCCL for ranks that are threads and streams that are host queues. It moves real data and
// has the timing behaviour of the real one. A collective is a command on each rank's queue
// ("kernel") that waits there for the other ranks' kernels, for ever unless aborted. Nothing of a
// group is issued before its end. Non-blocking communicators return "in progress" and issue the
// kernel only after some polls, so code that records an event without polling records it too early.
// The calls of the ranks are compared; each send must have its receive. Sums are formed in rank
// order, in float, and rounded once; or, with `adds_backwards`, from the last rank on, and each
// partial sum is rounded. As up to NCCL 2.25, a non-blocking call leaves its job in thread-local
// storage until a later call on the communicator joins it; meeting an unjoined job is counted.

#include "fake_nccl_kernel.hpp"
#include "fake_system.hpp"

#include <zero/cuda/nccl_options.hpp>
#include <zero/host/queue.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

namespace zero::test {

class FakeNccl : public cuda::NcclLibrary {
public:
    using Result = cuda::NcclResult;
    using Type = fake_nccl::Type;
    using Reduction = fake_nccl::Reduction;
    using Handle = cuda::NcclHandle;
    using Stream = cuda::StreamHandle;

    static constexpr int questions = 3; ///< polls until a non-blocking call is issued

    std::atomic<int> live{0}; ///< communicators that were made and not freed
    std::atomic<int> aborted{0};
    std::atomic<int> destroyed{0};
    std::atomic<int> mismatches{0};
    std::atomic<std::size_t> most_calls{0}; ///< calls of the kernel that has most
    std::atomic<int> hanging{0};            ///< kernels that wait for a kernel of another rank
    std::atomic<int> collisions{0}; ///< unjoined jobs that another communicator of the thread met,
                                    ///< or that another thread joined

    std::atomic<int> allocations{0};        ///< blocks of memory that were made and not freed
    std::atomic<std::size_t> allocated{0};  ///< their bytes, rounded up to `granularity`
    std::atomic<int> registrations{0};      ///< registrations that were made and not ended
    std::atomic<int> windows{0};            ///< windows that were made and not ended
    std::atomic<std::size_t> in_windows{0}; ///< calls with both buffers in a window
    std::atomic<std::size_t> misplaced{0};  ///< of those and others: what a peer accesses is not
                                            ///< at one offset in a window of each rank

    /// Set before the first call. Sums then have other bits than in rank order.
    bool adds_backwards = false;
    std::size_t granularity = 1;         ///< set before the first call
    bool can_have_windows = true;        ///< whether the machine can; set before the first call
    std::atomic<int> refuses_memory{-1}; ///< the device of the thread that gets no memory
    std::atomic<int> refuses_window{-1}; ///< the rank whose registration fails

    int header_version() noexcept override { return 22809; }
    Result get_version(int& version) noexcept override {
        version = 22809;
        return Result::success;
    }
    char const* error_string(Result) noexcept override { return "a fake error"; }
    char const* last_error(Handle) noexcept override { return ""; }

    Result get_unique_id(cuda::NcclUniqueId& id) noexcept override {
        std::uint64_t const number = ++_ids;
        std::memcpy(id.bytes.data(), &number, sizeof(number));
        return Result::success;
    }

    Result init_rank(Handle& handle, int world, cuda::NcclUniqueId const& id, int rank,
                     cuda::NcclOptions const& options) noexcept override {
        std::uint64_t number = 0;
        std::memcpy(&number, id.bytes.data(), sizeof(number));
        std::lock_guard const lock(_mutex);
        auto& group = _groups[number];
        if (group == nullptr) {
            group = std::make_shared<Group>(world);
        }
        auto* const comm = new Comm(group, rank, options.mode == cuda::NcclMode::non_blocking);
        ++live;
        {
            std::lock_guard const group_lock(group->mutex);
            ++group->joined;
        }
        group->changed.notify_all();
        handle = comm;
        return issue_now_or_with_group(
            *comm); // a blocking communicator would wait here; this one waits in its first kernel
    }

    bool has_split() noexcept override { return true; }
    Result split(Handle handle, int color, int key, Handle& part) noexcept override {
        Comm& comm = comm_of(handle);
        join(comm);
        auto const group = comm.group; // an abort frees the communicator while it waits
        auto const is_aborted = comm.is_aborted;
        Pending const pending{comm.splits++, color, key, comm.rank, comm.is_non_blocking, &part};
        {
            std::unique_lock lock(group->mutex);
            auto& callers = group->splits[pending.number];
            callers.push_back({color, key, comm.rank});
            group->changed.notify_all();
            if (!pending.is_non_blocking) {
                group->changed.wait(lock, [&] {
                    return is_aborted->load() || static_cast<int>(callers.size()) == group->world;
                });
                return is_aborted->load() ? Result::internal_error : make_part(*group, pending);
            }
        }
        comm.pending = pending;
        return issue({&comm});
    }

    Result count(Handle handle, int& world) noexcept override {
        join(comm_of(handle));
        world = comm_of(handle).group->world;
        return Result::success;
    }
    Result user_rank(Handle handle, int& rank) noexcept override {
        join(comm_of(handle));
        rank = comm_of(handle).rank;
        return Result::success;
    }

    Result get_async_error(Handle handle, Result& error) noexcept override {
        Comm& comm = comm_of(handle);
        error = Result::success;
        {
            std::lock_guard const lock(comm.group->mutex);
            if (comm.is_non_blocking && comm.group->joined < comm.group->world) {
                error = Result::in_progress;
                return Result::success;
            }
        }
        if (comm.pending.part != nullptr) {
            std::lock_guard const lock(comm.group->mutex);
            if (static_cast<int>(comm.group->splits[comm.pending.number].size())
                < comm.group->world) {
                error = Result::in_progress;
                return Result::success;
            }
            error = make_part(*comm.group, std::exchange(comm.pending, {}));
        }
        if (comm.pending_window.out != nullptr) {
            std::lock_guard const lock(comm.group->mutex);
            if (!are_windows_complete(*comm.group, comm.pending_window.number)) {
                error = Result::in_progress;
                return Result::success;
            }
            error = make_window(comm, std::exchange(comm.pending_window, {}));
        }
        if (comm.waiting.empty()) {
            return Result::success;
        }
        // A poll never blocks in the real NCCL. Here an inline queue runs the kernel at once, in
        // the issuing thread, where an abort expects it, and not in a watchdog that polls.
        if (std::this_thread::get_id() != comm.caller || --comm.questions_left > 0) {
            error = Result::in_progress;
        } else {
            launch(comm);
        }
        return Result::success;
    }

    Result finalize(Handle handle) noexcept override {
        join(comm_of(handle));
        return issue({&comm_of(handle)});
    }

    Result destroy(Handle handle) noexcept override {
        ++destroyed;
        join(comm_of(handle));
        free(handle);
        return Result::success;
    }

    Result abort(Handle handle) noexcept override {
        Comm& comm = comm_of(handle);
        {
            std::lock_guard const lock(comm.group->mutex);
            comm.is_aborted->store(true);
        }
        comm.group->changed.notify_all();
        ++aborted;
        if (comm.job != nullptr) {
            comm.job->is_open = false; // from any thread, because an abort is the last resort
        }
        free(handle);
        return Result::success;
    }

    Result group_start() noexcept override {
        ++open_group();
        return Result::success;
    }

    Result group_end() noexcept override {
        if (--open_group() != 0) {
            return Result::success;
        }
        std::vector<Comm*> const comms = std::move(comms_of_group());
        comms_of_group().clear();
        return issue(comms);
    }

    Result reduce(void const* send, void* receive, std::size_t count, Type type,
                  Reduction reduction, int root, Handle handle, Stream stream) noexcept override {
        return call(handle, stream, {Kind::reduce, send, receive, count, type, reduction, root});
    }
    Result broadcast(void const* send, void* receive, std::size_t count, Type type, int root,
                     Handle handle, Stream stream) noexcept override {
        return call(handle, stream,
                    {Kind::broadcast, send, receive, count, type, Reduction::sum, root});
    }
    Result all_reduce(void const* send, void* receive, std::size_t count, Type type,
                      Reduction reduction, Handle handle, Stream stream) noexcept override {
        return call(handle, stream, {Kind::all_reduce, send, receive, count, type, reduction, 0});
    }
    Result reduce_scatter(void const* send, void* receive, std::size_t count, Type type,
                          Reduction reduction, Handle handle, Stream stream) noexcept override {
        return call(handle, stream,
                    {Kind::reduce_scatter, send, receive, count, type, reduction, 0});
    }
    Result all_gather(void const* send, void* receive, std::size_t count, Type type, Handle handle,
                      Stream stream) noexcept override {
        return call(handle, stream,
                    {Kind::all_gather, send, receive, count, type, Reduction::sum, 0});
    }

    Result send(void const* memory, std::size_t count, Type type, int peer, Handle handle,
                Stream stream) noexcept override {
        return call(handle, stream,
                    {Kind::send, memory, nullptr, count, type, Reduction::sum, peer});
    }
    Result receive(void* memory, std::size_t count, Type type, int peer, Handle handle,
                   Stream stream) noexcept override {
        return call(handle, stream,
                    {Kind::receive, nullptr, memory, count, type, Reduction::sum, peer});
    }

    Result memory_allocate(void*& memory, std::size_t bytes) noexcept override {
        if (refuses_memory == FakeSystem::device) {
            return Result::unhandled_cuda_error;
        }
        std::size_t const rounded = (bytes + granularity - 1) / granularity * granularity;
        memory = allocate_block(rounded);
        std::lock_guard const lock(_mutex);
        _blocks[memory] = rounded;
        ++allocations;
        allocated += rounded;
        return Result::success;
    }
    std::size_t memory_size(void* memory, std::size_t) noexcept override {
        std::lock_guard const lock(_mutex);
        return _blocks.at(memory);
    }
    Result memory_free(void* memory) noexcept override {
        {
            std::lock_guard const lock(_mutex);
            allocated -= _blocks.at(memory);
            --allocations;
            _blocks.erase(memory);
        }
        free_block(memory);
        return Result::success;
    }
    Result register_memory(Handle, void* memory, std::size_t,
                           void*& registration) noexcept override {
        registration = memory;
        ++registrations;
        return Result::success;
    }
    Result deregister_memory(Handle, void*) noexcept override {
        --registrations;
        return Result::success;
    }

    bool has_windows() noexcept override { return true; }
    /// Waits for the other ranks, as NCCL does on the host.
    Result register_window(Handle handle, void* memory, std::size_t bytes,
                           void*& window) noexcept override {
        Comm& comm = comm_of(handle);
        join(comm);
        auto const group = comm.group; // an abort frees the communicator while it waits
        auto const is_aborted = comm.is_aborted;
        if (refuses_window == comm.rank) {
            return Result::internal_error;
        }
        PendingWindow const pending{comm.windows++, static_cast<std::byte*>(memory), bytes,
                                    &window};
        window = nullptr;
        {
            std::unique_lock lock(group->mutex);
            group->window_bytes[pending.number].push_back(bytes);
            group->changed.notify_all();
            if (!comm.is_non_blocking) {
                group->changed.wait(lock, [&] {
                    return is_aborted->load() || are_windows_complete(*group, pending.number);
                });
                return is_aborted->load() ? Result::internal_error : make_window(comm, pending);
            }
        }
        comm.pending_window = pending;
        return issue({&comm});
    }
    Result deregister_window(Handle handle, void* window) noexcept override {
        Group& group = *comm_of(handle).group;
        std::lock_guard const lock(group.mutex);
        std::erase_if(group.windows[comm_of(handle).rank],
                      [&](fake_nccl::Window const& own) { return own.begin == window; });
        --windows;
        return Result::success;
    }

protected:
    /// Whether collectives may use this memory; null is none.
    virtual bool may_use(void const* /*memory*/) { return true; }

    /// Memory of the device; freed by the next function.
    virtual void* allocate_block(std::size_t bytes) {
        return ::operator new(bytes, std::align_val_t{4096});
    }
    virtual void free_block(void* memory) { ::operator delete(memory, std::align_val_t{4096}); }

    /// The type of a stream. Enqueues `body(kernel)`.
    virtual void enqueue(Stream stream, void (*body)(void*), void* kernel) {
        static_cast<host::Queue*>(stream)->enqueue([body, kernel] { body(kernel); });
    }

private:
    using Kind = fake_nccl::Kind;
    using Call = fake_nccl::Call;
    using Meeting = fake_nccl::Meeting;

    /// The arguments of a rank in a split.
    struct SplitCaller {
        int color;
        int key;
        int rank;
    };

    struct Group {
        explicit Group(int ranks) : world(ranks) {}
        std::map<std::size_t, std::vector<std::size_t>> window_bytes; ///< of the callers, by number
        fake_nccl::Windows windows;
        std::map<std::size_t, std::vector<SplitCaller>> splits; ///< callers by number
        std::map<std::pair<std::size_t, int>, std::shared_ptr<Group>>
            parts; ///< by number and color
        int world;
        int joined = 0;
        std::mutex mutex;
        std::condition_variable changed;
        std::map<std::size_t, Meeting> meetings;
        std::map<int, std::size_t> kernels; ///< kernels that have begun, by rank; a kernel in a
                                            ///< graph begins with each replay
    };

    /// The job of a thread's last non-blocking group.
    struct Job {
        std::thread::id thread = std::this_thread::get_id();
        std::atomic<bool> is_open{false};
    };

    /// A split that is not done.
    struct Pending {
        std::size_t number = 0;
        int color = 0;
        int key = 0;
        int rank = 0;
        bool is_non_blocking = false;
        Handle* part = nullptr;
    };

    /// A window that not all ranks have registered.
    struct PendingWindow {
        std::size_t number = 0;
        std::byte* memory = nullptr;
        std::size_t bytes = 0;
        void** out = nullptr;
    };

    struct Comm {
        Comm(std::shared_ptr<Group> of, int number, bool is_polled)
            : group(std::move(of)), rank(number), is_non_blocking(is_polled) {}
        std::shared_ptr<Group> group;
        int rank;
        bool is_non_blocking;
        std::vector<Call> waiting;
        std::size_t splits = 0;
        Pending pending;
        std::size_t windows = 0;
        PendingWindow pending_window;
        Stream stream = nullptr;
        int questions_left = 0;
        std::thread::id caller{};
        std::shared_ptr<Job> job; ///< job of the last non-blocking call, until it is joined
        std::shared_ptr<std::atomic<bool>> is_aborted = std::make_shared<std::atomic<bool>>(false);
    };

    /// The data of kernels, freed with the library, because kernels outlive an aborted
    /// communicator.
    struct Kernel {
        FakeNccl* nccl;
        std::shared_ptr<Group> group;
        std::shared_ptr<std::atomic<bool>> is_aborted;
        int rank;
        std::vector<Call> calls;
    };

    static Comm& comm_of(Handle handle) noexcept { return *static_cast<Comm*>(handle); }
    static int& open_group() noexcept {
        static thread_local int depth = 0;
        return depth;
    }
    static std::vector<Comm*>& comms_of_group() noexcept {
        static thread_local std::vector<Comm*> comms;
        return comms;
    }

    /// Call it under the mutex of the group, when all its ranks have called.
    Result make_part(Group& group, Pending const& pending) {
        int world = 0;
        int rank = 0;
        for (SplitCaller const& caller : group.splits[pending.number]) {
            bool const is_before = caller.key < pending.key
                                   || (caller.key == pending.key && caller.rank < pending.rank);
            world += caller.color == pending.color ? 1 : 0;
            rank += caller.color == pending.color && is_before ? 1 : 0;
        }
        auto& part = group.parts[{pending.number, pending.color}];
        if (part == nullptr) {
            part = std::make_shared<Group>(world);
        }
        {
            std::lock_guard const lock(part->mutex);
            ++part->joined;
        }
        part->changed.notify_all();
        ++live;
        *pending.part = new Comm(part, rank, pending.is_non_blocking);
        return Result::success;
    }

    /// Call it under the mutex of the group.
    static bool are_windows_complete(Group const& group, std::size_t number) {
        return static_cast<int>(group.window_bytes.at(number).size()) == group.world;
    }

    /// Call it under the mutex of the group, when all its ranks have called. Windows of different
    /// sizes would overwrite one another in NCCL.
    Result make_window(Comm& comm, PendingWindow const& pending) {
        for (std::size_t const bytes : comm.group->window_bytes[pending.number]) {
            if (bytes != pending.bytes) {
                ++misplaced;
                return Result::invalid_argument;
            }
        }
        if (can_have_windows) {
            comm.group->windows[comm.rank].push_back({pending.memory, pending.bytes});
            *pending.out = pending.memory;
            ++windows;
        }
        return Result::success;
    }

    void free(Handle handle) noexcept {
        --live;
        delete static_cast<Comm*>(handle);
    }

    static std::shared_ptr<Job> const& job_of_thread() {
        static thread_local auto const job = std::make_shared<Job>();
        return job;
    }

    void join(Comm& comm) noexcept {
        if (auto const job = std::exchange(comm.job, nullptr);
            job != nullptr && job->is_open.exchange(false)) {
            collisions += job->thread == std::this_thread::get_id() ? 0 : 1;
        }
    }

    Result call(Handle handle, Stream stream, Call const& call) {
        if (!may_use(call.send) || !may_use(call.receive)) {
            return Result::invalid_argument;
        }
        Comm& comm = comm_of(handle);
        join(comm);
        comm.stream = stream;
        comm.waiting.push_back(call);
        return issue_now_or_with_group(comm);
    }

    Result issue_now_or_with_group(Comm& comm) {
        if (open_group() == 0) {
            return issue({&comm});
        }
        auto& comms = comms_of_group();
        if (std::find(comms.begin(), comms.end(), &comm) == comms.end()) {
            comms.push_back(&comm);
        }
        return Result::success;
    }

    Result issue(std::vector<Comm*> const& comms) {
        Result result = Result::success;
        for (Comm* const comm : comms) {
            if (comm->is_non_blocking) {
                if (std::exchange(result, Result::in_progress) == Result::success) {
                    collisions += job_of_thread()->is_open.exchange(true) ? 1 : 0;
                }
                comm->job = job_of_thread();
                comm->questions_left = questions;
                comm->caller = std::this_thread::get_id();
            } else if (!comm->waiting.empty()) {
                launch(*comm);
            }
        }
        return result;
    }

    void launch(Comm& comm) {
        Kernel* kernel = nullptr;
        Stream const stream = comm.stream;
        {
            std::lock_guard const lock(_mutex);
            most_calls = std::max(most_calls.load(), comm.waiting.size());
            kernel = &_kernels.emplace_back(
                Kernel{this, comm.group, comm.is_aborted, comm.rank, std::move(comm.waiting)});
            comm.waiting.clear();
        }
        auto const body = [](void* of) {
            static_cast<Kernel*>(of)->nccl->run(*static_cast<Kernel*>(of));
        };
        enqueue(stream, body, kernel); // an inline queue runs it here, and an abort may free the
                                       // communicator meanwhile
    }

    void run(Kernel& kernel) {
        Group& group = *kernel.group;
        std::unique_lock lock(group.mutex);
        Meeting& meeting = group.meetings[group.kernels[kernel.rank]++];
        meeting.calls.resize(static_cast<std::size_t>(group.world));
        meeting.calls[static_cast<std::size_t>(kernel.rank)] = kernel.calls;
        ++meeting.arrived;
        group.changed.notify_all();
        ++hanging;
        group.changed.wait(
            lock, [&] { return meeting.arrived == group.world || kernel.is_aborted->load(); });
        --hanging;
        if (meeting.arrived != group.world) {
            --meeting.arrived; // the others must not count on this rank
            return;
        }
        if (!fake_nccl::goes_together(meeting)) {
            ++mismatches;
            return;
        }
        if (kernel.rank == 0) {
            auto const counts = fake_nccl::check_offsets(group.windows, meeting);
            in_windows += counts.in_windows;
            misplaced += counts.misplaced;
        }
        // All results first, then all writes: a peer must not overwrite data that is read in place.
        std::vector<fake_nccl::Write> writes;
        for (std::size_t call = 0; call < kernel.calls.size(); ++call) {
            fake_nccl::compute(meeting, call, kernel.rank, group.world, adds_backwards, writes);
        }
        ++meeting.computed;
        group.changed.notify_all();
        group.changed.wait(lock, [&] { return meeting.computed == group.world; });
        for (fake_nccl::Write const& write : writes) {
            std::memcpy(write.out, write.bytes.data(), write.bytes.size());
        }
    }

    std::atomic<std::uint64_t> _ids{0};
    std::mutex _mutex;
    std::map<std::uint64_t, std::shared_ptr<Group>> _groups;
    std::map<void*, std::size_t> _blocks; ///< bytes by address
    std::deque<Kernel> _kernels;
};

} // namespace zero::test
