#pragma once

#include "../backend/fence.hpp"
#include "../core/buffer.hpp"
#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/detail/text.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/dtype.hpp"
#include "../core/error.hpp"
#include "../core/memory_resource.hpp"
#include "../core/policy_category.hpp"
#include "../host/host_backend.hpp"
#include "../host/kernels.hpp"
#include "../ops/arithmetic.hpp"
#include "communicator.hpp"
#include "detail/collective_call.hpp"
#include "detail/rendezvous.hpp"
#include "traffic_count.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE {

struct LoopbackOptions {
    detail::Rendezvous::Duration time_out = std::chrono::minutes(
        30); ///< above 0; how long a rank waits for its peers in one collective
};

/// @brief A communicator between the threads of one process, one per rank; the oracle for every
/// other transport.
///
/// The ranks meet on the host: the calling thread blocks until all ranks called, but not for the
/// data, whose movement is enqueued. (It waits for data only when it is more than 64 collectives
/// ahead of its queue, fewer in large groups: otherwise the queue would overflow. On a device that
/// copies arguments it never does.) Sums are formed in float in rank order, starting with the value
/// of rank 0, and rounded once. Operation, type, counts and tag are compared; a difference is a
/// CollectiveMismatch on every rank. No call allocates.
///
/// A rank leaves a collective, normally or by an exception, only after its peers have enqueued what
/// they read of its memory, and its queue waits for them: so when that queue has been drained, no
/// peer reads the rank's memory any more. After an exception the group is aborted and every further
/// collective throws `Aborted` with the first cause; a new group works. Destroying a communicator
/// means that the rank leaves: peers that would wait for it get `Aborted`. It waits until the
/// commands that this communicator enqueued have run.
template <class B>
class Loopback {
public:
    using policy_category = CommunicatorCategory;
    using Backend = B;
    using Queue = typename B::Queue;
    using Event = typename B::Event;

    /// @brief The communicators of a new group, by rank. @throws InvalidArgument when world or the
    /// time-out is not positive.
    static std::vector<Loopback> make_group(int world, LoopbackOptions const& options = {}) {
        if (world <= 0) {
            detail::throw_error<InvalidArgument>(
                {"zero: a group of ", world, " ranks; world must be at least 1."});
        }
        if (options.time_out.count() <= 0) {
            detail::throw_error<InvalidArgument>(
                {"zero: a time-out of ", options.time_out.count(), " ms; it must be positive."});
        }
        auto const group = std::make_shared<Group>(static_cast<std::size_t>(world), options);
        std::vector<Loopback> ranks;
        ranks.reserve(group->slots.size());
        for (std::size_t rank = 0; rank < group->slots.size(); ++rank) {
            ranks.push_back(Loopback(group, rank));
        }
        return ranks;
    }

    Loopback(Loopback&&) noexcept = default;
    Loopback& operator=(Loopback&&) = delete;

    ~Loopback() {
        if (_group == nullptr) {
            return;
        }
        try {
            _group->rendezvous.abort(
                detail::text({"rank ", _rank, " left the group (its communicator was destroyed)"}),
                false);
        } catch (...) { // no memory for the text
            _group->rendezvous.abort("a rank left the group", false);
        }
        try { // the commands on the way read the tables and the scratch memory
            if constexpr (!copies_arguments) {
                for (Flight const& flight : _flights) {
                    B::synchronise(flight.done);
                }
            }
            B::synchronise(_scratch_used);
        } catch (...) { // a device that has failed runs nothing any more
        }
    }

    [[nodiscard]] int rank() const noexcept { return static_cast<int>(_rank); }
    [[nodiscard]] int size() const noexcept { return static_cast<int>(world()); }

    /// @brief As `Communicator` says. @throws CommunicatorError; InvalidArgument before anything
    /// was sent.
    template <class T>
    void reduce_scatter(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                        CollectiveTag tag = {}) {
        auto const call = cut_call(CollectiveKind::reduce_scatter, dtype_of<T>(), cuts, tag);
        std::size_t const own = cuts[_rank + 1] - cuts[_rank];
        require_memory(call, send, call.count);
        require_memory(call, receive, own);
        collective(call, send, receive, queue, [&] { sum_extent(receive, cuts, queue); });
        _traffic.add(call.kind, own * (world() - 1), sizeof(T));
    }

    /// @copydoc reduce_scatter
    template <class T>
    void all_gather(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                    CollectiveTag tag = {}) {
        auto const call = cut_call(CollectiveKind::all_gather, dtype_of<T>(), cuts, tag);
        std::size_t const own = cuts[_rank + 1] - cuts[_rank];
        require_memory(call, send, own);
        require_memory(call, receive, call.count);
        gather(call, send, receive, cuts, sizeof(T), queue);
        _traffic.add(call.kind, call.count - own, sizeof(T));
    }

    /// @copydoc reduce_scatter
    template <class T>
    void all_reduce(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                    CollectiveTag tag = {}) {
        auto const call = cut_call(CollectiveKind::all_reduce, dtype_of<T>(), cuts, tag);
        std::size_t const own = cuts[_rank + 1] - cuts[_rank];
        require_memory(call, send, call.count);
        require_memory(call, receive, call.count);
        collective(
            call, send, receive, queue, [&] { sum_extent(receive + cuts[_rank], cuts, queue); },
            [&] { copy_extents(receive, true, cuts, sizeof(T), queue); });
        _traffic.add(call.kind, own * (world() - 1) + (call.count - own), sizeof(T));
    }

    /// @copydoc reduce_scatter
    template <class T>
    void broadcast(T* buffer, std::size_t elements, int root, Queue queue, CollectiveTag tag = {}) {
        auto const call = detail::broadcast_call(dtype_of<T>(), elements, root, tag, world());
        auto const source = static_cast<std::size_t>(root);
        require_memory(call, buffer, elements);
        spread(call, buffer, source, elements * sizeof(T), queue);
        _traffic.add(call.kind, source == _rank ? 0 : elements, sizeof(T));
    }

    /// @copydoc reduce_scatter
    /// Meets once per 64 values.
    void all_reduce_integers(std::int64_t* values, std::size_t elements, IntegerReduction reduction,
                             Queue queue, CollectiveTag tag = {}) {
        detail::CollectiveCall const call{CollectiveKind::integers, DType::int64, elements,
                                          static_cast<std::uint64_t>(reduction), tag};
        require_memory(call, values, elements);
        std::size_t done = 0;
        do { // no values: the ranks meet all the same
            std::size_t const part = detail::smaller(elements - done, scratch_elements);
            reduce_integers(call, values + done, part, reduction, queue);
            done += part;
        } while (done < elements);
        _traffic.add(call.kind, elements * (world() - 1), sizeof(std::int64_t));
    }

    void abort(std::string_view cause, bool is_provisional = false) noexcept {
        _group->rendezvous.abort(cause, is_provisional);
    }

    /// @brief All that this rank enqueued is ordered before all that it will. Its queue is drained
    /// before the communicator goes.
    void forget_events() noexcept { _scratch_used = {}; }

    /// @brief Elements and bytes that this rank read from the memory of others. For the rank's own
    /// thread.
    [[nodiscard]] TrafficCount const& traffic() const noexcept { return _traffic; }

    /// @brief Begins to count anew.
    void reset_traffic() noexcept { _traffic = {}; }

private:
    static constexpr std::size_t scratch_elements = 64;
    static constexpr bool copies_arguments =
        requires { requires B::copies_arguments; }; ///< tables of pointers are free at once

    /// What a rank shows the others. It writes before `enter`, and the last four also between
    /// `enter` and the next `pass`; the others read between those two, and `done` and `has_failed`
    /// after the last `pass` until they `enter` again.
    struct Slot {
        detail::CollectiveCall call{};
        void const* send = nullptr;
        void* receive = nullptr;
        Event ready{};
        Event reduced{};
        Event done{};
        bool has_failed = false;
    };

    struct Group {
        Group(std::size_t world, LoopbackOptions const& options)
            : rendezvous(world, options.time_out), slots(world) {}
        detail::Rendezvous rendezvous;
        detail::List<Slot> slots;
    };

    /// A collective under way: the pointers of its sum, which have to live until it ran, and its
    /// end.
    struct Flight {
        detail::List<void const*> peers;
        Event done{};
    };

    /// A collective is up to 5 W commands; together they have to fit into half of a host queue with
    /// room for the caller's own.
    static std::size_t flights_of(std::size_t world) noexcept {
        return detail::larger<std::size_t>(2, detail::smaller<std::size_t>(64, 4096 / (5 * world)));
    }

    Loopback(std::shared_ptr<Group> group, std::size_t rank)
        : _group(std::move(group)), _rank(rank), _flights(flights_of(world())),
          _scratch(B::default_memory(), scratch_elements, BufferKind::control) {
        for (Flight& flight : _flights) {
            flight.peers = detail::List<void const*>(world());
        }
    }

    [[nodiscard]] std::size_t world() const noexcept { return _group->slots.size(); }
    [[nodiscard]] Slot& slot(std::size_t rank) noexcept { return _group->slots[rank]; }
    [[nodiscard]] Flight& flight() noexcept { return _flights[_collectives % _flights.size()]; }

    [[nodiscard]] detail::CollectiveCall cut_call(CollectiveKind kind, DType type,
                                                  std::span<std::size_t const> cuts,
                                                  CollectiveTag tag) const {
        return detail::cut_call(kind, type, cuts, tag, _rank, world());
    }

    void require_memory(detail::CollectiveCall const& call, void const* memory,
                        std::size_t elements) const {
        detail::require_memory(call, memory, elements, _rank);
    }

    void gather(detail::CollectiveCall const& call, void const* send, void* receive,
                std::span<std::size_t const> cuts, std::size_t element_bytes, Queue queue) {
        collective(call, send, receive, queue,
                   [&] { copy_extents(receive, false, cuts, element_bytes, queue); });
    }

    /// Every rank's extent from where that rank has it: in the memory that it sends, or, when
    /// reduced, at its place in what it receives.
    void copy_extents(void* receive, bool are_reduced, std::span<std::size_t const> cuts,
                      std::size_t element_bytes, Queue queue) {
        for (std::size_t peer = 0; peer < world(); ++peer) {
            std::size_t const begin = cuts[peer] * element_bytes;
            auto const* const from = are_reduced
                                         ? static_cast<std::byte const*>(slot(peer).receive) + begin
                                         : slot(peer).send;
            B::copy_bytes(queue, static_cast<std::byte*>(receive) + begin, from,
                          (cuts[peer + 1] - cuts[peer]) * element_bytes);
        }
    }

    void spread(detail::CollectiveCall const& call, void* buffer, std::size_t source,
                std::size_t bytes, Queue queue) {
        collective(call, buffer, buffer, queue,
                   [&] { B::copy_bytes(queue, buffer, slot(source).send, bytes); });
    }

    /// The frame of every collective: publish, meet, compare, let `first` read the peers, perhaps
    /// meet and let `second` read them, part.
    void collective(detail::CollectiveCall const& call, void const* send, void* receive,
                    Queue queue, detail::FunctionRef<> first, detail::FunctionRef<> second = {}) {
        B::rethrow_failure(queue);
        if constexpr (!copies_arguments) {
            B::synchronise(flight().done);
        }
        Slot& own = slot(_rank);
        own.call = call;
        own.send = send;
        own.receive = receive;
        own.ready = B::record(queue);
        _group->rendezvous.enter(_rank, call.tag.what, call.tag.index);

        // From here to the last `pass` all ranks go the same way, whatever fails: who left early
        // would leave the others waiting.
        if (std::size_t const other = first_difference(); other != 0) {
            part_in_disagreement(other);
        }
        std::exception_ptr failure;
        attempt(failure, [&] {
            wait_for_peers(queue, &Slot::ready, Fence::peers_ready);
            first();
        });
        if (second) {
            record(own.reduced, queue, failure);
            _group->rendezvous.pass();
            attempt(failure, [&] {
                wait_for_peers(queue, &Slot::reduced, Fence::peers_reduced);
                second();
            });
        }
        // Also after a failure: some of the commands that read the peers may have been enqueued,
        // and the peers have enqueued theirs.
        record(own.done, queue, failure);
        own.has_failed = failure != nullptr;
        if (failure != nullptr) {
            abort_because_of(
                failure); // before the peers, who find the result unusable, ask for the cause
        }
        _group->rendezvous.pass();
        wait_until_peers_are_done(queue, failure);
        if constexpr (!copies_arguments) {
            record(flight().done, queue, failure);
        }
        ++_collectives;
        if (failure != nullptr) {
            abort_because_of(failure);
            std::rethrow_exception(failure);
        }
        throw_if_peer_failed();
    }

    /// The first rank that called something else than rank 0; 0 when all agree.
    [[nodiscard]] std::size_t first_difference() const noexcept {
        auto const& slots = _group->slots;
        for (std::size_t rank = 1; rank < slots.size(); ++rank) {
            if (!(slots[rank].call == slots[0].call)) {
                return rank;
            }
        }
        return 0;
    }

    [[noreturn]] void part_in_disagreement(std::size_t other) {
        std::string difference;
        std::exception_ptr failure;
        attempt(failure, [&] { difference = describe(slot(0).call, other, slot(other).call); });
        _group->rendezvous.pass(); // until here the peers read this rank's slot
        abort(difference);
        detail::throw_error<CollectiveMismatch>(
            {"zero: ", difference,
             "; every rank has to call the same collectives in the same order."});
    }

    /// Runs the body unless something has failed before.
    template <class Body>
    static void attempt(std::exception_ptr& failure, Body const& body) noexcept {
        if (failure == nullptr) {
            try {
                body();
            } catch (...) {
                failure = std::current_exception();
            }
        }
    }

    /// Records also after a failure.
    static void record(Event& event, Queue queue, std::exception_ptr& failure) noexcept {
        std::exception_ptr now;
        attempt(now, [&] { event = B::record(queue); });
        failure = failure == nullptr ? now : failure;
    }

    void wait_for_peers(Queue queue, Event Slot::*event, Fence fence) {
        for (std::size_t peer = 0; peer < world(); ++peer) {
            if (peer != _rank) {
                B::wait(queue, slot(peer).*event, fence);
            }
        }
    }

    /// Even when the queue takes no command any more, its owner may free memory as soon as it is
    /// drained: then the caller waits here.
    void wait_until_peers_are_done(Queue queue, std::exception_ptr& failure) noexcept {
        for (std::size_t peer = 0; peer < world(); ++peer) {
            if (peer == _rank) {
                continue;
            }
            std::exception_ptr now;
            attempt(now, [&] { B::wait(queue, slot(peer).done, Fence::peers_done); });
            if (now != nullptr) {
                failure = failure == nullptr ? now : failure;
                attempt(now = nullptr, [&] { B::synchronise(slot(peer).done); });
            }
        }
    }

    void abort_because_of(std::exception_ptr const& failure) noexcept {
        try {
            try {
                std::rethrow_exception(failure);
            } catch (std::exception const& error) {
                abort(detail::text({"rank ", _rank, ": ", error.what()}));
            } catch (...) {
                abort(detail::text({"rank ", _rank, ": an exception that is no std::exception"}));
            }
        } catch (...) { // no memory for the text
            abort("a rank failed inside a collective");
        }
    }

    void throw_if_peer_failed() const {
        for (Slot const& peer : _group->slots) {
            if (peer.has_failed) {
                detail::throw_error<Aborted>(
                    {"zero: the group was aborted: ", _group->rendezvous.cause()});
            }
        }
    }

    /// Sums this rank's extent of all ranks' `send` into `out`.
    template <class T>
    void sum_extent(T* out, std::span<std::size_t const> cuts, Queue queue) {
        std::size_t const begin = cuts[_rank];
        if (cuts[_rank + 1] != begin) {
            B::sum_ranks(queue, out, pointers<T>(begin), size(), cuts[_rank + 1] - begin);
        }
    }

    /// Where `send[begin]` is on each rank, as a table that lives as long as this collective is
    /// under way.
    template <class T>
    T const* const* pointers(std::size_t begin) {
        static_assert(sizeof(T const*) == sizeof(void const*));
        auto* const memory = reinterpret_cast<std::byte*>(flight().peers.data());
        T const** table = nullptr;
        for (std::size_t peer = 0; peer < world(); ++peer) {
            auto* const entry = ::new (static_cast<void*>(memory + peer * sizeof(T const*)))(
                T const*)(static_cast<T const*>(slot(peer).send) + begin);
            table = peer == 0 ? entry : table;
        }
        return table;
    }

    void reduce_integers(detail::CollectiveCall const& call, std::int64_t* values,
                         std::size_t elements, IntegerReduction reduction, Queue queue) {
        collective(call, values, values, queue, [&] {
            B::wait(queue, _scratch_used,
                    Fence::peers_done); // the caller may have changed to another queue
            auto const* const peers = pointers<std::int64_t>(0);
            if (reduction == IntegerReduction::sum) {
                B::sum_integers(queue, _scratch.data(), peers, size(), elements);
            } else {
                B::min_integers(queue, _scratch.data(), peers, size(), elements);
            }
        });
        B::copy_bytes(queue, values, _scratch.data(),
                      elements * sizeof(std::int64_t)); // now that the peers have read them
        _scratch_used = B::record(queue);
    }

    std::shared_ptr<Group> _group;
    std::size_t _rank;
    TrafficCount _traffic;
    detail::List<Flight> _flights;
    std::size_t _collectives = 0; ///< so far
    Buffer<std::int64_t> _scratch;
    Event _scratch_used{};
};

using LoopbackCommunicator = Loopback<HostBackend>;
static_assert(Communicator<LoopbackCommunicator>);

} // namespace ZERO_NAMESPACE
