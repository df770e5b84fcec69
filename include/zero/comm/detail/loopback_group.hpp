#pragma once

#include "../../backend/fence.hpp"
#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/error.hpp"
#include "../../core/memory_resource.hpp"
#include "../../core/storage_types.hpp"
#include "../../host/inline_queue.hpp"
#include "../../host/queue.hpp"
#include "../../layout/piece.hpp"
#include "../../ops/tree_sum.hpp"
#include "../communicator.hpp"
#include "../loopback_options.hpp"
#include "collective_call.hpp"
#include "rendezvous.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

class LoopbackGroup;

/// @brief The state that one rank of a loopback group shows its peers.
///
/// The rank writes its slot before `enter`. The peers read it between `enter` and the next `pass`.
struct LoopbackSlot {
    CollectiveCall call{};
    void const* send = nullptr; ///< the address of `pieces` if the rank sends those
    std::span<SentPiece const> pieces{};
    void* receive = nullptr;
    bool is_in_use = false;                ///< a thread is in a call; only for `LoopbackFrame`
    int color = 0;                         ///< color in a split
    int key = 0;                           ///< key in a split
    std::shared_ptr<LoopbackGroup> part{}; ///< the group that this rank made in a split
};

/// @brief The elements that one rank sends to a sum, as the command that adds walks through them.
struct LoopbackSent {
    explicit LoopbackSent(LoopbackSlot const& slot) noexcept
        : send(slot.send), pieces(slot.send == &slot.pieces ? slot.pieces : decltype(pieces){}) {}
    LoopbackSent() = default;

    void const* send = nullptr;
    std::span<SentPiece const> pieces{}; ///< empty: all is at `send`
    std::size_t next = 0; ///< index of the first piece that ends after the place of the walk
    void const* address = nullptr; ///< of the element at that place

    /// @brief Calls `add(offset, elements)` for runs of a range, until it has had all. Element
    /// `range.begin + offset` of each rank is then at its place in `addresses`.
    static void sum(std::span<LoopbackSent> ranks, std::size_t element_bytes, Range const& range,
                    void const** addresses, FunctionRef<std::size_t, std::size_t> add);

private:
    /// Moves to element `at`. Returns where the elements from there on are no longer contiguous.
    std::size_t seek(std::size_t element_bytes, std::size_t at, std::size_t end) noexcept;
};

/// @brief A group and all groups that were split from it. A failure of one group reaches all of
/// them before any rank throws because of it. So a rank that saw the failure of one group also
/// finds it in the others, and cannot leave them without it.
class LoopbackFamily {
public:
    explicit LoopbackFamily(std::size_t ranks) noexcept : _ranks(ranks) {}

    /// @brief Adds a group, which fails at once if another one has failed. @throws std::bad_alloc
    void add(Rendezvous& member);

    /// @brief Removes a group, which no abort reaches from then on.
    void remove(Rendezvous& member) noexcept;

    /// @brief Aborts all groups; see `Rendezvous`.
    void abort(std::string_view cause, bool is_provisional) noexcept;

    /// @brief Aborts all groups if this one has failed. The departure of a rank is not a failure.
    void spread(Rendezvous const& member) noexcept;

    /// @brief Ends groups whose ranks wait for each other, as those of a rank that makes more
    /// micro-steps than the others of its group do. A rank that waits calls it.
    void end_if_stuck() noexcept;

    /// @brief The mutex of all groups, so that they are seen at one time.
    [[nodiscard]] std::mutex& of_groups() noexcept { return _of_groups; }

private:
    void abort_all(std::string_view cause, bool is_provisional) noexcept;

    RanksInProcess _ranks;
    std::mutex _mutex; ///< is locked before that of the groups
    std::mutex _of_groups;
    std::vector<Rendezvous*> _members; ///< the older ones first
    std::chrono::steady_clock::time_point _next_look{};
};

/// @brief The place of a rank after a split.
struct LoopbackPart {
    std::size_t first = 0; ///< the lowest old rank of the new group, which makes it
    std::size_t rank = 0;  ///< the new rank
    int world = 0;         ///< ranks of the new group
};

/// @brief The part of a loopback group's shared state that does not depend on the backend. Owns the
/// slots and the rendezvous.
class LoopbackGroup {
public:
    /// @throws InvalidArgument if `world` or the time-out is not positive
    LoopbackGroup(int world, LoopbackOptions const& options,
                  std::shared_ptr<LoopbackFamily> family = nullptr);
    ~LoopbackGroup() { _family->remove(_rendezvous); }

    [[nodiscard]] std::size_t world() const noexcept { return _slots.size(); }
    [[nodiscard]] LoopbackSlot& slot(std::size_t rank) noexcept { return _slots[rank]; }

    /// @brief Shows the slot of a rank to its peers, waits for them and compares their calls.
    /// @throws Aborted, TimedOut; CollectiveMismatch on every rank
    void enter(std::size_t rank);

    /// @brief Shows the arguments of a split to the peers, waits for them and returns the place of
    /// this rank in its new group.
    /// @throws Aborted, TimedOut; CollectiveMismatch on every rank
    [[nodiscard]] LoopbackPart enter_split(std::size_t rank, int color, int key);

    [[nodiscard]] LoopbackOptions const& options() const noexcept { return _options; }
    [[nodiscard]] std::shared_ptr<LoopbackFamily> const& family() const noexcept { return _family; }

    /// @brief Notes that a rank sends pieces, before it enters. From then on all ranks look for
    /// them.
    void expect_pieces() noexcept { _expects_pieces.store(true, std::memory_order_relaxed); }

    [[nodiscard]] bool expects_pieces() const noexcept {
        return _expects_pieces.load(std::memory_order_relaxed);
    }

    void pass() { _rendezvous.pass(); }
    void begin_run(std::size_t rank) noexcept { _rendezvous.begin_run(rank); }
    void end_run(std::size_t rank) noexcept { _rendezvous.end_run(rank); }

    /// @brief Aborts this group and those of its family; see `Rendezvous`.
    void abort(std::string_view cause, bool is_provisional) noexcept {
        _family->abort(cause, is_provisional);
    }

    /// @brief Aborts the group because of an exception on a rank.
    void abort_because_of(std::size_t rank, std::exception_ptr const& failure) noexcept;

    /// @brief The same, unless it is null, before the last `pass`: no rank can use the result.
    void note_failure(std::size_t rank, std::exception_ptr const& failure) noexcept;

    /// @brief Aborts this group, and no other, because a rank no longer takes part.
    void leave(std::string_view cause, bool is_provisional = false) noexcept {
        _rendezvous.leave(cause, is_provisional);
    }

    /// @brief Aborts this group, and no other, because the communicator of the rank is destroyed.
    /// @param is_unwinding whether an exception destroys it: its handler may report the cause
    void leave(std::size_t rank, bool is_unwinding) noexcept;

    /// @brief Throws if a rank failed inside the collective. @throws Aborted
    void throw_if_rank_failed() const;

private:
    [[nodiscard]] std::size_t first_difference() const noexcept;
    [[noreturn]] void part_in_disagreement(std::size_t other);

    LoopbackOptions _options;
    std::shared_ptr<LoopbackFamily> _family;
    Rendezvous _rendezvous;
    List<LoopbackSlot> _slots;
    std::size_t _different = 0; ///< what the last rank that entered found
    std::atomic<bool> _expects_pieces{false};
    std::atomic<bool> _has_failed{false}; ///< all later collectives fail
};

/// @brief The events that one rank of a loopback group shows its peers. They are written and read
/// like `LoopbackSlot`; `reduced` and `done` are written between `enter` and the next `pass`.
template <class Event>
struct LoopbackEvents {
    Event ready{};
    Event reduced{};
    Event done{};
};

/// @brief `LoopbackGroup` with the events of the ranks, in the type of the backend.
template <class Event>
struct LoopbackEventGroup : LoopbackGroup {
    LoopbackEventGroup(int world, LoopbackOptions const& options,
                       std::shared_ptr<LoopbackFamily> family = nullptr)
        : LoopbackGroup(world, options, std::move(family)), events(this->world()) {}

    List<LoopbackEvents<Event>> events;
};

/// @brief The frame of every collective of one rank: show the call to the peers, meet them, compare
/// the calls, let the collective read the peers, leave. Used by `Loopback`; owns the tables of
/// pointers that its commands read.
template <class B>
class LoopbackFrame {
public:
    using Queue = typename B::Queue;
    using Event = typename B::Event;
    using Group = LoopbackEventGroup<Event>;

    LoopbackFrame(std::shared_ptr<Group> group, std::size_t rank);
    LoopbackFrame(LoopbackFrame&&) noexcept = default;
    LoopbackFrame& operator=(LoopbackFrame&&) = delete;

    /// @brief Leaves the group and waits until the commands of this rank have run.
    ~LoopbackFrame();

    [[nodiscard]] LoopbackGroup& group() const noexcept { return *_group; }
    [[nodiscard]] std::size_t rank() const noexcept { return _rank; }
    [[nodiscard]] std::size_t world() const noexcept { return _group->world(); }
    [[nodiscard]] LoopbackSlot& slot(std::size_t rank) noexcept { return _group->slot(rank); }

    /// @brief Returns the resource of the scratch memory.
    [[nodiscard]] MemoryResource& memory() const noexcept {
        MemoryResource* const given = _group->options().memory;
        return given != nullptr ? *given : B::default_memory();
    }

    /// @brief Returns the frame of this rank in the new group of its color. Collective.
    /// @throws CommunicatorError
    [[nodiscard]] LoopbackFrame split(int color, int key);

    /// @brief Runs one collective. `first` enqueues commands that read what the peers send; after
    /// a second meeting `second`, if given, enqueues commands that read what the peers reduced.
    /// @throws CommunicatorError
    void collective(CollectiveCall const& call, void const* send, void* receive, Queue queue,
                    FunctionRef<> first, FunctionRef<> second = {});

    /// @brief Returns what a reduction must be given as `send` to send pieces.
    [[nodiscard]] void const* send_of(std::span<SentPiece const> pieces) noexcept {
        slot(_rank).pieces = pieces;
        _group->expect_pieces();
        return &slot(_rank).pieces;
    }

    /// @brief Whether ranks may send pieces: commands are functors that walk them.
    static constexpr bool reads_pieces = std::is_same_v<Queue, host::Queue*>;

    /// @brief Enqueues the copy of every rank's extent to its place in `receive`. The source is the
    /// memory that the rank sends or, if `are_reduced`, the extent's place in what it receives.
    void copy_extents(void* receive, bool are_reduced, std::span<std::size_t const> cuts,
                      std::size_t element_bytes, Queue queue);

    /// @brief Enqueues a sum of this rank's extent of all `send` into `out`.
    using SumExtent = void (*)(LoopbackFrame&, void* out, std::span<std::size_t const> cuts, Queue,
                               ops::HeldSums const&);

    /// @brief A `SumExtent` in order of rank.
    template <StorageType T>
    static void sum_extent(LoopbackFrame& frame, void* out, std::span<std::size_t const> cuts,
                           Queue queue, ops::HeldSums const& none);

    /// @brief Enqueues the same sum and its conversion to elements of `A`, or their addition to
    /// them.
    template <StorageType T, StorageType A, bool is_added>
    static void accumulate_extent(LoopbackFrame& frame, void* sum,
                                  std::span<std::size_t const> cuts, Queue queue,
                                  ops::HeldSums const& none);

    /// @brief A `SumExtent` as a subtree of micro-batches, for elements of `A`.
    template <StorageType T, StorageType A>
    static void sum_tree_extent(LoopbackFrame& frame, void* out, std::span<std::size_t const> cuts,
                                Queue queue, ops::HeldSums const& held);

    /// @brief Returns a table of the addresses of `send[begin]` on each rank. It is valid until the
    /// commands of the current collective have run.
    template <class T>
    T const* const* pointers(std::size_t begin);

private:
    /// Whether tables of pointers may be reused when an operation returns.
    static constexpr bool copies_arguments = requires { requires B::copies_arguments; };

    /// The pointers of a pending collective's sum, which commands read, and the end of the
    /// collective.
    struct Flight {
        List<void const*> peers;
        List<LoopbackSent> sent; ///< if any rank sends pieces
        Event done{};
    };

    /// A collective is up to 5 W commands. Those of all flights must fit into half of a host queue;
    /// the other half is left to the caller.
    static std::size_t flights_of(std::size_t world) noexcept {
        return larger<std::size_t>(2, smaller<std::size_t>(64, 4096 / (5 * world)));
    }

    [[nodiscard]] Flight& flight() noexcept { return _flights[_collectives % _flights.size()]; }
    [[nodiscard]] LoopbackEvents<Event>& events(std::size_t rank) noexcept {
        return _group->events[rank];
    }

    /// Enqueues a sum of this rank's extent: `sum(queue, offset, addresses, world, elements)`, in
    /// commands if ranks send pieces.
    template <StorageType T, class Sum>
    void sum_sent(std::span<std::size_t const> cuts, Queue queue, Sum const& sum);

    /// Refuses what a peer sends if commands of this rank cannot read it; see `reason_against` of
    /// the backend. @throws InvalidArgument naming both ranks
    void require_access_to_peers();

    static void attempt(std::exception_ptr& failure, FunctionRef<> body) noexcept;
    static void record(Event& event, Queue queue, std::exception_ptr& failure) noexcept;
    void wait_for_peers(Queue queue, Event LoopbackEvents<Event>::*event, Fence fence);
    void wait_until_peers_are_done(Queue queue, std::exception_ptr& failure) noexcept;

    std::shared_ptr<Group> _group;
    std::size_t _rank;
    int _exceptions = std::uncaught_exceptions(); ///< in flight at construction
    List<Flight> _flights;
    std::size_t _collectives = 0;                     ///< number of collectives so far
    std::array<bool, collective_kinds> _has_access{}; ///< to what peers send, by kind
};

template <class B>
LoopbackFrame<B>::LoopbackFrame(std::shared_ptr<Group> group, std::size_t rank)
    : _group(std::move(group)), _rank(rank), _flights(flights_of(world())) {
    for (Flight& flight : _flights) {
        flight.peers = List<void const*>(world());
        flight.sent = List<LoopbackSent>(reads_pieces ? world() : 0);
    }
}

template <class B>
LoopbackFrame<B>::~LoopbackFrame() {
    if (_group == nullptr) {
        return;
    }
    _group->leave(_rank, std::uncaught_exceptions() > _exceptions);
    if constexpr (!copies_arguments) {
        try { // pending commands read the tables
            for (Flight const& flight : _flights) {
                B::synchronise(flight.done);
            }
        } catch (...) { // a device that has failed runs no further commands
        }
    }
}

template <class B>
void LoopbackFrame<B>::collective(CollectiveCall const& call, void const* send, void* receive,
                                  Queue queue, FunctionRef<> first, FunctionRef<> second) {
    B::rethrow_failure(queue);
    LoopbackSlot& own = slot(_rank);
    SoleThread const sole(own.is_in_use, call.tag);
    if constexpr (!copies_arguments) {
        B::synchronise(flight().done);
    }
    own.call = call;
    own.send = send;
    own.receive = receive;
    events(_rank).ready = B::record(queue);
    _group->enter(_rank);

    // From here to the last `pass` all ranks take the same path even after a failure: a rank that
    // leaves early would leave the others waiting.
    std::exception_ptr failure;
    attempt(failure, [&] {
        if (!std::exchange(_has_access[static_cast<std::size_t>(call.kind)], true)) {
            require_access_to_peers();
        }
        wait_for_peers(queue, &LoopbackEvents<Event>::ready, Fence::peers_ready);
        first();
    });
    if (second) {
        record(events(_rank).reduced, queue, failure);
        _group->pass();
        attempt(failure, [&] {
            wait_for_peers(queue, &LoopbackEvents<Event>::reduced, Fence::peers_reduced);
            second();
        });
    }
    // This runs even after a failure: some of the commands that read the peers may have been
    // enqueued, and the peers have enqueued theirs.
    record(events(_rank).done, queue, failure);
    _group->note_failure(_rank, failure);
    _group->pass();
    wait_until_peers_are_done(queue, failure);
    if constexpr (!copies_arguments) {
        record(flight().done, queue, failure);
    }
    ++_collectives;
    if (failure != nullptr) {
        _group->abort_because_of(_rank, failure);
        std::rethrow_exception(failure);
    }
    _group->throw_if_rank_failed();
}

template <class B>
LoopbackFrame<B> LoopbackFrame<B>::split(int color, int key) {
    LoopbackSlot& own = slot(_rank);
    SoleThread const sole(own.is_in_use, CollectiveTag{"split of the group"});
    LoopbackPart const part = _group->enter_split(_rank, color, key);
    std::exception_ptr failure;
    if (part.first == _rank) {
        attempt(failure, [&] {
            own.part = std::make_shared<Group>(part.world, _group->options(), _group->family());
        });
    }
    _group->note_failure(_rank, failure);
    _group->pass();
    auto const group = std::static_pointer_cast<Group>(slot(part.first).part);
    _group->pass(); // all ranks have taken their new group
    own.part.reset();
    if (failure != nullptr) {
        std::rethrow_exception(failure);
    }
    _group->throw_if_rank_failed();
    try {
        return LoopbackFrame(group, part.rank);
    } catch (...) {
        _group->abort_because_of(_rank, std::current_exception());
        throw;
    }
}

template <class B>
void LoopbackFrame<B>::copy_extents(void* receive, bool are_reduced,
                                    std::span<std::size_t const> cuts, std::size_t element_bytes,
                                    Queue queue) {
    for (std::size_t peer = 0; peer < world(); ++peer) {
        std::size_t const begin = cuts[peer] * element_bytes;
        auto const* const from = are_reduced
                                     ? static_cast<std::byte const*>(slot(peer).receive) + begin
                                     : slot(peer).send;
        B::copy_bytes(queue, static_cast<std::byte*>(receive) + begin, from,
                      (cuts[peer + 1] - cuts[peer]) * element_bytes);
    }
}

template <class B>
template <StorageType T>
void LoopbackFrame<B>::sum_extent(LoopbackFrame& frame, void* out,
                                  std::span<std::size_t const> cuts, Queue queue,
                                  ops::HeldSums const& /*none*/) {
    frame.template sum_sent<T>(cuts, queue, [=](Queue on, auto at, auto peers, int world, auto n) {
        B::sum_ranks(on, static_cast<T*>(out) + at, peers, world, n);
    });
}

template <class B>
template <StorageType T, StorageType A, bool is_added>
void LoopbackFrame<B>::accumulate_extent(LoopbackFrame& frame, void* sum,
                                         std::span<std::size_t const> cuts, Queue queue,
                                         ops::HeldSums const& /*none*/) {
    frame.template sum_sent<T>(cuts, queue, [=](Queue on, auto at, auto peers, int world, auto n) {
        B::sum_ranks(on, static_cast<A*>(sum) + at, peers, world, n, is_added);
    });
}

template <class B>
template <StorageType T, StorageType A>
void LoopbackFrame<B>::sum_tree_extent(LoopbackFrame& frame, void* out,
                                       std::span<std::size_t const> cuts, Queue queue,
                                       ops::HeldSums const& held) {
    frame.template sum_sent<T>(cuts, queue, [=](Queue on, auto at, auto peers, int world, auto n) {
        B::sum_tree(on, ops::TreeSum<A>{static_cast<A*>(out) + at, held.from(at)}, peers, world, n);
    });
}

template <class B>
template <StorageType T, class Sum>
void LoopbackFrame<B>::sum_sent(std::span<std::size_t const> cuts, Queue queue, Sum const& sum) {
    std::size_t const begin = cuts[_rank];
    std::size_t const end = cuts[_rank + 1];
    auto const ranks = static_cast<int>(world());
    if (begin == end) {
        return;
    }
    if constexpr (reads_pieces) {
        if (_group->expects_pieces()) [[unlikely]] {
            Flight& own = flight();
            for (std::size_t peer = 0; peer < world(); ++peer) {
                own.sent[peer] = LoopbackSent(slot(peer));
            }
            queue->enqueue([=, sent = std::span(own.sent.data(), own.sent.size()),
                            addresses = own.peers.data()] {
                host::InlineQueue now;
                auto const add = [&](std::size_t offset, std::size_t elements) {
                    sum(&now, offset, typed_pieces<T>(addresses, ranks), ranks, elements);
                };
                LoopbackSent::sum(sent, sizeof(T), {begin, end}, addresses, add);
            });
            return;
        }
    }
    sum(queue, std::size_t{0}, pointers<T>(begin), ranks, end - begin);
}

template <class B>
template <class T>
T const* const* LoopbackFrame<B>::pointers(std::size_t begin) {
    static_assert(sizeof(T const*) == sizeof(void const*));
    auto* const memory = reinterpret_cast<std::byte*>(flight().peers.data());
    T const** table = nullptr;
    for (std::size_t peer = 0; peer < world(); ++peer) {
        auto* const entry = ::new (static_cast<void*>(memory + peer * sizeof(T const*)))(T const*)(
            static_cast<T const*>(slot(peer).send) + begin);
        table = peer == 0 ? entry : table;
    }
    return table;
}

template <class B>
void LoopbackFrame<B>::require_access_to_peers() {
    if constexpr (requires { B::reason_against(nullptr); }) {
        for (std::size_t peer = 0; peer < world(); ++peer) {
            void const* const memory = peer != _rank ? slot(peer).send : nullptr;
            auto const reason = memory != nullptr ? B::reason_against(memory) : std::string();
            if (!reason.empty()) {
                throw_error<InvalidArgument>(
                    {"zero: Loopback: rank ", _rank, " cannot read what rank ", peer,
                     " sends, which is ", reason,
                     ", or use NCCL (NcclCommunicator) for ranks on several devices."});
            }
        }
    }
}

/// Runs the body unless something has failed before.
template <class B>
void LoopbackFrame<B>::attempt(std::exception_ptr& failure, FunctionRef<> body) noexcept {
    if (failure == nullptr) {
        try {
            body();
        } catch (...) {
            failure = std::current_exception();
        }
    }
}

/// Records the event even after a failure.
template <class B>
void LoopbackFrame<B>::record(Event& event, Queue queue, std::exception_ptr& failure) noexcept {
    std::exception_ptr now;
    attempt(now, [&] { event = B::record(queue); });
    failure = failure == nullptr ? now : failure;
}

template <class B>
void LoopbackFrame<B>::wait_for_peers(Queue queue, Event LoopbackEvents<Event>::*event,
                                      Fence fence) {
    for (std::size_t peer = 0; peer < world(); ++peer) {
        if (peer != _rank) {
            B::wait(queue, events(peer).*event, fence);
        }
    }
}

/// If the queue accepts no further command, the calling thread waits instead: the owner of the
/// memory may free it as soon as the queue is drained.
template <class B>
void LoopbackFrame<B>::wait_until_peers_are_done(Queue queue,
                                                 std::exception_ptr& failure) noexcept {
    for (std::size_t peer = 0; peer < world(); ++peer) {
        if (peer == _rank) {
            continue;
        }
        std::exception_ptr now;
        attempt(now, [&] { B::wait(queue, events(peer).done, Fence::peers_done); });
        if (now != nullptr) {
            failure = failure == nullptr ? now : failure;
            attempt(now = nullptr, [&] { B::synchronise(events(peer).done); });
        }
    }
}

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "loopback_group.ipp"
#endif
