#pragma once

#include "../backend/backend.hpp"
#include "../backend/fence.hpp"
#include "../core/buffer.hpp"
#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/dtype.hpp"
#include "../core/memory_resource.hpp"
#include "../core/policy_category.hpp"
#include "../core/storage_types.hpp"
#include "../host/host_backend.hpp"
#include "collective_tag.hpp"
#include "communicator.hpp"
#include "detail/collective_call.hpp"
#include "detail/group_place.hpp"
#include "detail/loopback_group.hpp"
#include "detail/rendezvous.hpp"
#include "loopback_options.hpp"
#include "traffic_count.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief A communicator between the threads of one process, one per rank; the reference for every
/// other transport.
///
/// The ranks meet on the host: the calling thread blocks until all ranks have called, but it does
/// not wait for the data, whose movement is enqueued. (It waits for data only when it is more than
/// 64 collectives ahead of its queue, fewer in large groups; otherwise the queue would overflow. On
/// a device that copies arguments it never waits.) Sums are formed in float in rank order, starting
/// with the value of rank 0, and rounded once. Operation, type, counts and tag are compared; a
/// difference is a CollectiveMismatch on every rank, and so are ranks that wait for each other in
/// groups of one split (so a rank calls each group from one thread). A second thread that calls the
/// communicator of a rank meanwhile gets OutOfOrder. No call allocates.
///
/// A rank leaves a collective, normally or by an exception, only after its peers have enqueued the
/// commands that read its memory, and its queue waits for them: once that queue is drained, no peer
/// reads the rank's memory. After an exception the group is aborted and every further collective
/// throws `Aborted` with the first cause; create a new group to continue. When a communicator is
/// destroyed, its rank leaves: peers that would wait for it get `Aborted`. The destructor waits
/// until the commands that this communicator enqueued have run.
template <class B>
class Loopback {
public:
    using policy_category = CommunicatorCategory;
    using Backend = B;
    using Queue = typename B::Queue;
    using Event = typename B::Event;
    static constexpr bool compares_calls = true;

    /// @brief Returns the communicators of a new group, by rank. @throws InvalidArgument if `world`
    /// or the time-out is not positive
    static std::vector<Loopback> make_group(int world, LoopbackOptions const& options = {});

    Loopback(Loopback&&) noexcept = default;
    Loopback& operator=(Loopback&&) = delete;
    ~Loopback() = default;

    [[nodiscard]] int rank() const noexcept { return static_cast<int>(_frame.rank()); }
    [[nodiscard]] int size() const noexcept { return static_cast<int>(_frame.world()); }

    /// @brief See `Communicator`: the rank.
    [[nodiscard]] int position() const noexcept { return rank(); }

    /// @brief See `Communicator`. Parts of a split count once.
    [[nodiscard]] std::size_t ranks_in_process() const noexcept
        requires(detail::LoopbackFrame<B>::reads_pieces)
    {
        return detail::RanksInProcess::count();
    }

    /// @brief See `Communicator`. @throws CommunicatorError; InvalidArgument before anything is
    /// sent
    template <class T>
    void reduce_scatter(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                        CollectiveTag tag = {}) {
        scatter_sums(dtype_of<T>(), &Frame::template sum_extent<T>, send, receive, cuts, queue,
                     tag);
    }

    /// @brief A reduce-scatter whose result replaces the elements of `sum` or is added to them.
    /// Optional operation of a `Communicator`.
    template <class T, class A>
        requires detail::BackendAddsSums<B, A, T>
    void reduce_scatter(T const* send, A* sum, std::span<std::size_t const> cuts, Queue queue,
                        CollectiveTag tag, bool is_added) {
        scatter_sums(dtype_of<T>(),
                     is_added ? &Frame::template accumulate_extent<T, A, true>
                              : &Frame::template accumulate_extent<T, A, false>,
                     send, sum, cuts, queue, tag);
    }

    /// @brief A reduce-scatter whose command reads the pieces of each rank where they lie. Optional
    /// operation of a `Communicator`.
    template <class T, class A>
        requires(detail::BackendAddsSums<B, A, T> && detail::LoopbackFrame<B>::reads_pieces)
    void reduce_scatter(SentPieces<T> send, A* sum, std::span<std::size_t const> cuts, Queue queue,
                        CollectiveTag tag, bool is_added) {
        place().require_pieces(send.all, cuts, tag);
        scatter_sums(dtype_of<T>(),
                     is_added ? &Frame::template accumulate_extent<T, A, true>
                              : &Frame::template accumulate_extent<T, A, false>,
                     _frame.send_of(send.all), sum, cuts, queue, tag);
    }

    /// @brief A reduce-scatter that adds as a subtree of micro-batches. Optional operation of a
    /// `Communicator`.
    template <class T, class A>
        requires detail::BackendSumsTree<B, A, T>
    void reduce_scatter(T const* send, ops::TreeSum<A> const& sum,
                        std::span<std::size_t const> cuts, Queue queue, CollectiveTag tag = {}) {
        scatter_sums(dtype_of<T>(), &Frame::template sum_tree_extent<T, A>, send, sum.out, cuts,
                     queue, tag, sum.held);
    }

    /// @copydoc reduce_scatter
    template <class T>
    void all_gather(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                    CollectiveTag tag = {}) {
        gather(dtype_of<T>(), send, receive, cuts, queue, tag);
    }

    /// @brief See `ExchangingCommunicator`. @throws CommunicatorError; InvalidArgument before
    /// anything is sent
    template <class T>
    void exchange(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                  CollectiveTag tag = {}) {
        collect(dtype_of<T>(), send, receive, cuts, queue, tag);
    }

    /// @copydoc reduce_scatter
    template <class T>
    void all_reduce(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                    CollectiveTag tag = {}) {
        gather_sums(dtype_of<T>(), &Frame::template sum_extent<T>, send, receive, cuts, queue, tag);
    }

    /// @copydoc reduce_scatter
    template <class T>
    void broadcast(T* buffer, std::size_t elements, int root, Queue queue, CollectiveTag tag = {}) {
        spread(dtype_of<T>(), buffer, elements, root, queue, tag);
    }

    /// @copydoc reduce_scatter
    /// The ranks meet once per 64 values.
    void all_reduce_integers(std::int64_t* values, std::size_t elements, IntegerReduction reduction,
                             Queue queue, CollectiveTag tag = {});

    /// @brief Sums the first `sums` integers and minimises the next `minima`. Optional operation of
    /// a `Communicator`; the ranks meet once per 64 values.
    void all_reduce_integers(std::int64_t* values, std::size_t sums, std::size_t minima,
                             Queue queue, CollectiveTag tag = {})
        requires detail::BackendReducesIntegersTogether<B>
    {
        reduce_all_integers(place().integers(values, sums, minima, tag), values, queue);
    }

    /// @brief Aborts this group, the one that it was split from and all groups split from them.
    void abort(std::string_view cause, bool is_provisional = false) noexcept {
        _frame.group().abort(cause, is_provisional);
    }

    /// @brief See `SplittableCommunicator`. Blocks until all ranks have called. @throws
    /// CommunicatorError; std::bad_alloc, which aborts the group
    [[nodiscard]] Loopback split(int color, int key) { return Loopback(_frame.split(color, key)); }

    /// @brief Makes the collectives of this group throw `Aborted` on every rank, because this rank
    /// calls none any more. Groups that were split from it continue.
    void leave(std::string_view cause) noexcept { _frame.group().leave(cause); }

    /// @brief Marks the beginning of a body of `run_rank`, which calls it.
    void begin_run() noexcept { _frame.group().begin_run(_frame.rank()); }

    /// @brief Marks the end of a body of `run_rank`. Peers inside the body of the same number that
    /// wait for this rank get `Aborted`.
    void end_run() noexcept { _frame.group().end_run(_frame.rank()); }

    /// @brief See `Communicator`. The same for buckets of any size.
    [[nodiscard]] std::size_t scratch_bytes(std::size_t /*largest_bucket_bytes*/) const noexcept {
        return _scratch.values.size_bytes();
    }

    /// @brief Drops the events of earlier commands, which must be ordered before all later ones.
    /// The queue must be drained before the communicator is destroyed.
    void forget_events() noexcept { _scratch.used = {}; }

    /// @brief Returns the elements and bytes that this rank read from the memory of others. Only
    /// for the thread of this rank.
    [[nodiscard]] TrafficCount const& traffic() const noexcept { return _traffic; }

    /// @brief Resets the counts.
    void reset_traffic() noexcept { _traffic = {}; }

private:
    using Frame = detail::LoopbackFrame<B>;

    /// Enqueues the sum of this rank's extent, in the type of its elements.
    using SumExtent = typename Frame::SumExtent;

    /// The device memory of `all_reduce_integers`.
    struct Scratch {
        static constexpr std::size_t elements = 64;

        explicit Scratch(MemoryResource& memory)
            : values(memory, elements, BufferKind::communicator) {}
        Scratch(Scratch&&) noexcept = default;
        Scratch& operator=(Scratch&&) = delete;
        ~Scratch();

        Buffer<std::int64_t> values;
        Event used{};
    };

    explicit Loopback(Frame&& frame) : _scratch(frame.memory()), _frame(std::move(frame)) {}

    [[nodiscard]] std::size_t peers() const noexcept { return _frame.world() - 1; }
    [[nodiscard]] detail::GroupPlace place() const noexcept {
        return {_frame.rank(), _frame.world()};
    }
    void scatter_sums(DType type, SumExtent sum, void const* send, void* receive,
                      std::span<std::size_t const> cuts, Queue queue, CollectiveTag tag,
                      ops::HeldSums const& held = {});
    void gather(DType type, void const* send, void* receive, std::span<std::size_t const> cuts,
                Queue queue, CollectiveTag tag);
    void gather_sums(DType type, SumExtent sum, void const* send, void* receive,
                     std::span<std::size_t const> cuts, Queue queue, CollectiveTag tag);
    void collect(DType type, void const* send, void* receive, std::span<std::size_t const> cuts,
                 Queue queue, CollectiveTag tag);
    void spread(DType type, void* buffer, std::size_t elements, int root, Queue queue,
                CollectiveTag tag);
    void reduce_all_integers(detail::CollectiveCall const& call, std::int64_t* values, Queue queue);
    void reduce_integers(detail::CollectiveCall const& call, std::int64_t* values, std::size_t sums,
                         std::size_t minima, Queue queue);
    static void combine(Queue queue, std::int64_t* out, std::int64_t const* const* peers, int world,
                        std::size_t sums, std::size_t minima);

    TrafficCount _traffic;
    Scratch _scratch;
    Frame _frame; // declared after the scratch memory: it leaves the group before that memory's
                  // destructor waits
};

template <class B>
std::vector<Loopback<B>> Loopback<B>::make_group(int world, LoopbackOptions const& options) {
    auto const group = std::make_shared<typename Frame::Group>(world, options);
    std::vector<Loopback> ranks;
    ranks.reserve(group->world());
    for (std::size_t rank = 0; rank < group->world(); ++rank) {
        ranks.push_back(Loopback(Frame(group, rank)));
    }
    return ranks;
}

template <class B>
void Loopback<B>::all_reduce_integers(std::int64_t* values, std::size_t elements,
                                      IntegerReduction reduction, Queue queue, CollectiveTag tag) {
    reduce_all_integers(place().integers(values, elements, reduction, tag), values, queue);
}

template <class B>
void Loopback<B>::reduce_all_integers(detail::CollectiveCall const& call, std::int64_t* values,
                                      Queue queue) {
    std::size_t done = 0;
    do { // the ranks meet even if there are no values
        std::size_t const count = detail::smaller(call.count - done, Scratch::elements);
        std::size_t const sums =
            detail::smaller(call.sums() - detail::smaller(call.sums(), done), count);
        reduce_integers(call, values + done, sums, count - sums, queue);
        done += count;
    } while (done < call.count);
    _traffic.add(call.kind, call.count * peers(), sizeof(std::int64_t));
}

template <class B>
Loopback<B>::Scratch::~Scratch() {
    try { // pending commands use the memory, unless it has been moved
        if (values) {
            B::synchronise(used);
        }
    } catch (...) { // a device that has failed runs no further commands
    }
}

template <class B>
void Loopback<B>::scatter_sums(DType type, SumExtent sum, void const* send, void* receive,
                               std::span<std::size_t const> cuts, Queue queue, CollectiveTag tag,
                               ops::HeldSums const& held) {
    auto const call = place().reduce_scatter(type, send, receive, cuts, tag);
    _frame.collective(call, send, receive, queue, [&] { sum(_frame, receive, cuts, queue, held); });
    _traffic.add(call.kind, place().own(cuts) * peers(), size_of(type));
}

template <class B>
void Loopback<B>::gather(DType type, void const* send, void* receive,
                         std::span<std::size_t const> cuts, Queue queue, CollectiveTag tag) {
    auto const call = place().all_gather(type, send, receive, cuts, tag);
    _frame.collective(call, send, receive, queue,
                      [&] { _frame.copy_extents(receive, false, cuts, size_of(type), queue); });
    _traffic.add(call.kind, call.count - place().own(cuts), size_of(type));
}

template <class B>
void Loopback<B>::gather_sums(DType type, SumExtent sum, void const* send, void* receive,
                              std::span<std::size_t const> cuts, Queue queue, CollectiveTag tag) {
    auto const call = place().all_reduce(type, send, receive, cuts, tag);
    std::size_t const own = place().own(cuts);
    _frame.collective(
        call, send, receive, queue,
        [&] {
            std::size_t const begin = cuts[_frame.rank()] * size_of(type);
            sum(_frame, static_cast<std::byte*>(receive) + begin, cuts, queue, {});
        },
        [&] { _frame.copy_extents(receive, true, cuts, size_of(type), queue); });
    _traffic.add(call.kind, own * peers() + (call.count - own), size_of(type));
}

template <class B>
void Loopback<B>::collect(DType type, void const* send, void* receive,
                          std::span<std::size_t const> cuts, Queue queue, CollectiveTag tag) {
    auto const call = place().exchange(type, send, receive, cuts, tag);
    std::size_t const own = place().own(cuts);
    _frame.collective(call, send, receive, queue, [&] {
        std::size_t const begin = cuts[_frame.rank()] * size_of(type);
        std::size_t const bytes = own * size_of(type);
        for (std::size_t peer = 0; peer < _frame.world() && bytes != 0; ++peer) {
            B::copy_bytes(queue, static_cast<std::byte*>(receive) + peer * bytes,
                          static_cast<std::byte const*>(_frame.slot(peer).send) + begin, bytes);
        }
    });
    _traffic.add(call.kind, own * peers(), size_of(type));
}

template <class B>
void Loopback<B>::spread(DType type, void* buffer, std::size_t elements, int root, Queue queue,
                         CollectiveTag tag) {
    auto const call = place().broadcast(type, buffer, elements, root, tag);
    auto const source = static_cast<std::size_t>(root);
    _frame.collective(call, buffer, buffer, queue, [&] {
        B::copy_bytes(queue, buffer, _frame.slot(source).send, elements * size_of(type));
    });
    _traffic.add(call.kind, source == _frame.rank() ? 0 : elements, size_of(type));
}

template <class B>
void Loopback<B>::reduce_integers(detail::CollectiveCall const& call, std::int64_t* values,
                                  std::size_t sums, std::size_t minima, Queue queue) {
    if (peers() == 0) { // the values stay
        _frame.collective(call, values, values, queue, [] {});
        return;
    }
    std::int64_t* const reduced = _scratch.values.data();
    _frame.collective(call, values, values, queue, [&] {
        B::wait(queue, _scratch.used, Fence::peers_done); // the caller may have changed the queue
        combine(queue, reduced, _frame.template pointers<std::int64_t>(0), size(), sums, minima);
    });
    // now that the peers have read the values
    B::copy_bytes(queue, values, reduced, (sums + minima) * sizeof(std::int64_t));
    _scratch.used = B::record(queue);
}

/// Sums and minima come together only with a backend that combines them.
template <class B>
void Loopback<B>::combine(Queue queue, std::int64_t* out, std::int64_t const* const* peers,
                          int world, std::size_t sums, std::size_t minima) {
    if constexpr (detail::BackendReducesIntegersTogether<B>) {
        B::reduce_integers(queue, out, peers, world, sums, minima);
    } else if (sums != 0) {
        B::sum_integers(queue, out, peers, world, sums);
    } else {
        B::min_integers(queue, out, peers, world, minima);
    }
}

/// @brief The communicator between threads whose memory is on the host.
using LoopbackCommunicator = Loopback<HostBackend>;
static_assert(SplittableCommunicator<LoopbackCommunicator>
              && ExchangingCommunicator<LoopbackCommunicator>);

} // namespace ZERO_NAMESPACE

#if defined(ZERO_COMPILED)
#include "detail/loopback_instantiations.hpp"
#include "detail/optional_operations.hpp"

namespace ZERO_NAMESPACE {
ZERO_COMM_INSTANTIATE_LOOPBACK(extern)
} // namespace ZERO_NAMESPACE
#endif
