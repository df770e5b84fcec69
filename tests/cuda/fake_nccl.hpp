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

#include "fake_system.hpp"

#include <zero/core/convert.hpp>
#include <zero/core/storage_types.hpp>
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
    using Type = cuda::NcclType;
    using Reduction = cuda::NcclReduction;
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
                      [&](Window const& own) { return own.begin == window; });
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
    enum class Kind { reduce, broadcast, all_reduce, reduce_scatter, all_gather, send, receive };

    struct Call {
        Kind kind;
        void const* send;
        void* receive;
        std::size_t count;
        Type type;
        Reduction reduction;
        int root; ///< the peer of a send and a receive

        [[nodiscard]] bool is_between_two() const {
            return kind == Kind::send || kind == Kind::receive;
        }
        [[nodiscard]] bool goes_with(Call const& other) const {
            return kind == other.kind && count == other.count && type == other.type
                   && reduction == other.reduction && root == other.root;
        }
    };

    /// One kernel of all ranks.
    struct Meeting {
        std::vector<std::vector<Call>> calls; ///< calls by rank
        int arrived = 0;
        int computed = 0;
    };

    /// The arguments of a rank in a split.
    struct SplitCaller {
        int color;
        int key;
        int rank;
    };

    struct Window {
        std::byte const* begin;
        std::size_t bytes;
    };

    struct Group {
        explicit Group(int ranks) : world(ranks) {}
        std::map<std::size_t, std::vector<std::size_t>> window_bytes; ///< of the callers, by number
        std::map<int, std::vector<Window>> windows;                   ///< by rank
        std::map<std::size_t, std::vector<SplitCaller>> splits;       ///< callers by number
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

    /// The offset in a window of the rank, or -1.
    static std::ptrdiff_t offset_in_window(Group const& group, std::size_t rank,
                                           void const* memory) {
        auto const found = group.windows.find(static_cast<int>(rank));
        if (found != group.windows.end()) {
            for (Window const& window : found->second) {
                auto const offset = static_cast<std::byte const*>(memory) - window.begin;
                if (memory != nullptr && offset >= 0
                    && offset < static_cast<std::ptrdiff_t>(window.bytes)) {
                    return offset;
                }
            }
        }
        return -1;
    }

    /// Checks what NCCL's symmetric kernels need: each buffer is in a window of all ranks or of
    /// none, and a buffer that peers read (reductions) or write (gathers) has one offset. One rank
    /// checks for all. Call it under the mutex of the group.
    void check_offsets(Group const& group, Meeting const& meeting) {
        for (std::size_t call = 0; call < meeting.calls[0].size(); ++call) {
            auto const kind = meeting.calls[0][call].kind;
            if (kind != Kind::all_gather && kind != Kind::reduce_scatter
                && kind != Kind::all_reduce) {
                continue; // has no such kernel
            }
            std::ptrdiff_t const first_sent =
                offset_in_window(group, 0, meeting.calls[0][call].send);
            std::ptrdiff_t const first_received =
                offset_in_window(group, 0, meeting.calls[0][call].receive);
            in_windows += first_sent >= 0 && first_received >= 0 ? 1 : 0;
            for (std::size_t rank = 1; rank < meeting.calls.size(); ++rank) {
                Call const& other = meeting.calls[rank][call];
                auto const sent = offset_in_window(group, rank, other.send);
                auto const received = offset_in_window(group, rank, other.receive);
                bool const differs =
                    (sent < 0) != (first_sent < 0) || (received < 0) != (first_received < 0)
                    || (kind != Kind::all_gather && sent != first_sent)
                    || (kind != Kind::reduce_scatter && received != first_received);
                misplaced += differs ? 1 : 0;
            }
        }
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
        if (!goes_together(meeting)) {
            ++mismatches;
            return;
        }
        if (kernel.rank == 0) {
            check_offsets(group, meeting);
        }
        // All results first, then all writes: a peer must not overwrite data that is read in place.
        std::vector<Write> writes;
        for (std::size_t call = 0; call < kernel.calls.size(); ++call) {
            compute(meeting, call, kernel.rank, group.world, writes);
        }
        ++meeting.computed;
        group.changed.notify_all();
        group.changed.wait(lock, [&] { return meeting.computed == group.world; });
        for (Write const& write : writes) {
            std::memcpy(write.out, write.bytes.data(), write.bytes.size());
        }
    }

    /// The calls of all ranks are equal, except that each send has its receive.
    static bool goes_together(Meeting const& meeting) {
        auto const of_all = [](std::vector<Call> calls) {
            std::erase_if(calls, [](Call const& call) { return call.is_between_two(); });
            return calls;
        };
        auto const first = of_all(meeting.calls[0]);
        for (auto const& calls : meeting.calls) {
            auto const other = of_all(calls);
            if (!std::equal(other.begin(), other.end(), first.begin(), first.end(),
                            [](Call const& a, Call const& b) { return a.goes_with(b); })) {
                return false;
            }
        }
        int const world = static_cast<int>(meeting.calls.size());
        for (int from = 0; from < world; ++from) {
            for (int to = 0; to < world; ++to) {
                auto const sent = between(meeting, Kind::send, from, to);
                auto const received = between(meeting, Kind::receive, to, from);
                if (!std::equal(sent.begin(), sent.end(), received.begin(), received.end(),
                                [](Call const* a, Call const* b) {
                                    return a->count == b->count && a->type == b->type;
                                })) {
                    return false;
                }
            }
        }
        return true;
    }

    /// The sends or receives of a rank whose peer is `peer`, in order.
    static std::vector<Call const*> between(Meeting const& meeting, Kind kind, int rank, int peer) {
        std::vector<Call const*> found;
        for (Call const& call : meeting.calls[static_cast<std::size_t>(rank)]) {
            if (call.kind == kind && call.root == peer) {
                found.push_back(&call);
            }
        }
        return found;
    }

    struct Write {
        void* out;
        std::vector<std::byte> bytes;
    };

    static std::size_t bytes_of(Type type) {
        switch (type) {
        case Type::float32: return 4;
        case Type::int64: return 8;
        case Type::uint8: return 1;
        default: return 2;
        }
    }

    void compute(Meeting const& meeting, std::size_t index, int rank, int world,
                 std::vector<Write>& writes) const {
        auto const at = [&](int peer) -> Call const& {
            return meeting.calls[static_cast<std::size_t>(peer)][index];
        };
        Call const& own = at(rank);
        std::size_t const bytes = own.count * bytes_of(own.type);
        switch (own.kind) {
        case Kind::send: return;
        case Kind::receive: {
            auto const received = between(meeting, Kind::receive, rank, own.root);
            auto const number = std::find(received.begin(), received.end(), &own);
            auto const sent = between(meeting, Kind::send, own.root, rank);
            Call const& from = *sent[static_cast<std::size_t>(number - received.begin())];
            writes.push_back({own.receive, bytes_at(from.send, 0, bytes)});
            return;
        }
        case Kind::broadcast:
            writes.push_back({own.receive, bytes_at(at(own.root).send, 0, bytes)});
            return;
        case Kind::all_gather:
            for (int peer = 0; peer < world; ++peer) {
                writes.push_back(
                    {static_cast<std::byte*>(own.receive) + static_cast<std::size_t>(peer) * bytes,
                     bytes_at(at(peer).send, 0, bytes)});
            }
            return;
        case Kind::reduce:
            if (rank != own.root) {
                return;
            }
            break;
        default: break;
        }
        std::size_t const begin =
            own.kind == Kind::reduce_scatter ? static_cast<std::size_t>(rank) * bytes : 0;
        std::vector<std::vector<std::byte>> inputs;
        for (int peer = 0; peer < world; ++peer) {
            inputs.push_back(bytes_at(at(peer).send, begin, bytes));
        }
        writes.push_back({own.receive, reduced(inputs, own)});
    }

    static std::vector<std::byte> bytes_at(void const* memory, std::size_t begin,
                                           std::size_t bytes) {
        auto const* const first = static_cast<std::byte const*>(memory) + begin;
        return {first, first + bytes};
    }

    std::vector<std::byte> reduced(std::vector<std::vector<std::byte>> const& inputs,
                                   Call const& call) const {
        switch (call.type) {
        case Type::float32: return summed<float>(inputs, call.count);
        case Type::bfloat16: return summed<bfloat16>(inputs, call.count);
        case Type::float16: return summed<float16>(inputs, call.count);
        default: return reduced_integers(inputs, call);
        }
    }

    template <class T>
    static T element(std::vector<std::byte> const& bytes, std::size_t index) {
        T value;
        std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
        return value;
    }

    template <class T>
    std::vector<std::byte> summed(std::vector<std::vector<std::byte>> const& inputs,
                                  std::size_t count) const {
        std::vector<std::byte> out(count * sizeof(T));
        std::size_t const ranks = inputs.size();
        for (std::size_t i = 0; i < count; ++i) {
            float sum = to_float(element<T>(inputs[adds_backwards ? ranks - 1 : 0], i));
            for (std::size_t rank = 1; rank < ranks; ++rank) {
                if (adds_backwards) {
                    sum = to_float(
                        from_float<T>(sum + to_float(element<T>(inputs[ranks - 1 - rank], i))));
                } else {
                    sum += to_float(element<T>(inputs[rank], i));
                }
            }
            T const rounded = from_float<T>(sum);
            std::memcpy(out.data() + i * sizeof(T), &rounded, sizeof(T));
        }
        return out;
    }

    static std::vector<std::byte>
    reduced_integers(std::vector<std::vector<std::byte>> const& inputs, Call const& call) {
        std::vector<std::byte> out(call.count * sizeof(std::int64_t));
        for (std::size_t i = 0; i < call.count; ++i) {
            auto value = element<std::int64_t>(inputs[0], i);
            for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
                auto const other = element<std::int64_t>(inputs[rank], i);
                value = call.reduction == Reduction::sum ? value + other : std::min(value, other);
            }
            std::memcpy(out.data() + i * sizeof(value), &value, sizeof(value));
        }
        return out;
    }

    std::atomic<std::uint64_t> _ids{0};
    std::mutex _mutex;
    std::map<std::uint64_t, std::shared_ptr<Group>> _groups;
    std::map<void*, std::size_t> _blocks; ///< bytes by address
    std::deque<Kernel> _kernels;
};

} // namespace zero::test
