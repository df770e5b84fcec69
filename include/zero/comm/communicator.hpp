#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/policy_category.hpp"
#include "../core/storage_types.hpp"
#include "../ops/tree_sum.hpp"
#include "collective_tag.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace ZERO_NAMESPACE {

/// @brief A part of what a rank sends, in memory of its own. Owns nothing.
struct SentPiece {
    void const* data = nullptr; ///< first element, at the alignment of its type; null: zeros
    std::size_t begin = 0;      ///< offset in what the rank sends, in elements
    std::size_t elements = 0;   ///< length in elements, any number
};

/// @brief The elements of `T` that a rank sends, if they are not at one address: pieces in
/// ascending order that do not overlap. Owns nothing.
template <class T>
struct SentPieces {
    std::span<SentPiece const> all; ///< at least one, unless nothing is sent
};

} // namespace ZERO_NAMESPACE

/// The requirements of `Communicator`, one concept each. The concept and its messages use them.
namespace ZERO_NAMESPACE::detail {

template <class C>
concept IsCommunicatorPolicy = std::same_as<typename C::policy_category, CommunicatorCategory>;

template <class C>
concept HasBackendQueue = requires { typename C::Backend::Queue; };

template <class C>
concept HasRankAndSize = requires(C const& communicator) {
    { communicator.rank() } -> std::convertible_to<int>;
    { communicator.size() } -> std::convertible_to<int>;
};

template <class C>
concept HasReduceScatter =
    requires(C& communicator, float const* send, float* receive, bfloat16 const* send_half,
             bfloat16* receive_half, std::span<std::size_t const> cuts,
             typename C::Backend::Queue queue, CollectiveTag tag) {
        communicator.reduce_scatter(send, receive, cuts, queue, tag);
        communicator.reduce_scatter(send_half, receive_half, cuts, queue, tag);
    };

/// Whether a reduce-scatter of `T` can add to elements of `A`. Optional.
template <class C, class T, class A>
concept AccumulatesReduceScatter =
    requires(C& communicator, T const* send, A* sum, std::span<std::size_t const> cuts,
             typename C::Backend::Queue queue,
             CollectiveTag tag) { communicator.reduce_scatter(send, sum, cuts, queue, tag, true); };

/// Whether such a reduce-scatter can read pieces of `T` where they lie. Optional.
template <class C, class T, class A>
concept ReduceScattersPieces =
    requires(C& communicator, SentPieces<T> send, A* sum, std::span<std::size_t const> cuts,
             typename C::Backend::Queue queue,
             CollectiveTag tag) { communicator.reduce_scatter(send, sum, cuts, queue, tag, true); };

/// Whether a reduce-scatter of `T` can add as a subtree of micro-batches into `A`. Optional.
template <class C, class T, class A>
concept ReduceScattersInTree =
    requires(C& communicator, T const* send, ops::TreeSum<A> const& sum,
             std::span<std::size_t const> cuts, typename C::Backend::Queue queue,
             CollectiveTag tag) { communicator.reduce_scatter(send, sum, cuts, queue, tag); };

/// Whether it says by which number of this rank such a reduce-scatter adds. Required with it.
template <class C>
concept HasPosition = requires(C const& communicator) {
    { communicator.position() } noexcept -> std::same_as<int>;
};

template <class C>
concept HasAllGather =
    requires(C& communicator, float const* send, float* receive, std::int64_t const* send_integers,
             std::int64_t* receive_integers, std::span<std::size_t const> cuts,
             typename C::Backend::Queue queue, CollectiveTag tag) {
        communicator.all_gather(send, receive, cuts, queue, tag);
        communicator.all_gather(send_integers, receive_integers, cuts, queue, tag);
    };

template <class C>
concept HasAllReduce =
    requires(C& communicator, float const* send, float* receive, bfloat16 const* send_half,
             bfloat16* receive_half, std::span<std::size_t const> cuts,
             typename C::Backend::Queue queue, CollectiveTag tag) {
        communicator.all_reduce(send, receive, cuts, queue, tag);
        communicator.all_reduce(send_half, receive_half, cuts, queue, tag);
    };

template <class C>
concept HasBroadcast = requires(C& communicator, float* buffer, std::int64_t* integers,
                                typename C::Backend::Queue queue, CollectiveTag tag) {
    communicator.broadcast(buffer, std::size_t{}, 0, queue, tag);
    communicator.broadcast(integers, std::size_t{}, 0, queue, tag);
};

template <class C>
concept HasAllReduceIntegers = requires(C& communicator, std::int64_t* integers,
                                        typename C::Backend::Queue queue, CollectiveTag tag) {
    communicator.all_reduce_integers(integers, std::size_t{}, IntegerReduction::sum, queue, tag);
};

/// @brief Whether sums and minima of integers travel together: the optional operation of a
/// `Communicator`.
template <class C>
concept ReducesIntegersTogether = requires(C& communicator, std::int64_t* integers,
                                           typename C::Backend::Queue queue, CollectiveTag tag) {
    communicator.all_reduce_integers(integers, std::size_t{}, std::size_t{}, queue, tag);
};

/// @brief Whether all-gathers may start together: the optional `grouped` of a `Communicator`.
template <class C>
concept GroupsGathers = requires(C& communicator, typename C::Backend::Queue queue,
                                 void (*const body)()) { communicator.grouped(queue, body); };

/// @brief Whether ranks whose calls differ learn it from the transport: the optional
/// `compares_calls` of a `Communicator`.
template <class C>
inline constexpr bool compares_calls = requires { requires C::compares_calls; };

template <class C>
concept HasAbort = requires(C& communicator) {
    { communicator.abort(std::string_view(), true) } noexcept;
};

template <class C>
concept HasExchange =
    requires(C& communicator, float const* send, float* receive, bfloat16 const* send_half,
             bfloat16* receive_half, std::int64_t const* send_integers,
             std::int64_t* receive_integers, std::span<std::size_t const> cuts,
             typename C::Backend::Queue queue, CollectiveTag tag) {
        communicator.exchange(send, receive, cuts, queue, tag);
        communicator.exchange(send_half, receive_half, cuts, queue, tag);
        communicator.exchange(send_integers, receive_integers, cuts, queue, tag);
    };

template <class C>
concept HasSplit = requires(C& communicator) { communicator.split(0, 0); };

template <class C>
concept SplitsIntoItself = requires(C& communicator) {
    { communicator.split(0, 0) } -> std::same_as<C>;
};

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief A policy that moves data between the W ranks of a group.
///
/// All operations are collective: every rank of the group calls them in the same order with the
/// same type, counts and tag. They may block until the other ranks have called, but only enqueue
/// the movement of data on `queue`. Buffers must stay valid, and must not be used by other queues,
/// until an event recorded after the call is complete. `cuts` and the text of `tag` must stay valid
/// until the call returns. Counts are elements. `cuts` are W + 1 monotone offsets that begin with 0
/// and are the same on every rank; rank r has the extent [cuts[r], cuts[r + 1]), which may be
/// empty. The reductions take float, bfloat16 and float16; the other operations also take 64-bit
/// integers and bytes.
///
/// The conformance suite (`tests/comm/conformance.hpp`) also requires of an author:
///
/// - *Threads.* The thread of a rank makes all calls of its communicator but `abort`, which any
/// thread may call. During a call only that thread enqueues on `queue`.
/// - *Commands.* A command that an operation enqueues on a host queue is a trivially copyable
/// functor of at most 112 bytes (`host::Command`): pointers and numbers. It must not refer to
/// `cuts` or `tag`, so copy what it reads. A command may throw: the queue keeps the first
/// exception, skips the commands after it and gives it to `Backend::rethrow_failure(queue)`, which
/// an operation calls first. An inline queue throws out of the operation at once.
/// - *Sums* are formed in float, in rank order from rank 0 on, and rounded once to the element
/// type.
/// - *Memory.* An operation writes `receive` and nothing else: a reduce-scatter in place leaves the
/// other extents of `send` as they were. Buffers may be overwritten by the next command on `queue`,
/// on every rank, so it waits until no peer reads them.
/// - *Abort.* After `abort`, the operations in progress and all later ones throw `Aborted` with the
/// first cause, on every rank. Invalid arguments throw InvalidArgument before anything is sent.
///
/// The operations:
///
/// - `reduce_scatter(send, receive, cuts, queue, tag)`: `send` holds cuts[W] elements; `receive`
/// gets the sum of this rank's extent. In place: receive == send + cuts[rank].
/// - `all_gather(send, receive, cuts, queue, tag)`: `send` is this rank's extent; `receive` gets
/// all extents. In place: send == receive + cuts[rank].
/// - `all_reduce(send, receive, cuts, queue, tag)`: `receive` gets the sum of all extents, with the
/// same bits as the two operations above. In place: receive == send.
/// - `broadcast(buffer, elements, root, queue, tag)`: copies the buffer of rank `root` to all
/// ranks.
/// - `all_reduce_integers(values, elements, reduction, queue, tag)`: exact, in place.
/// - `abort(cause, is_provisional)`: releases every rank from every collective with `Aborted`. Any
/// thread may call it. For a short time a provisional cause may be replaced by a better one.
/// - optional, `reduce_scatter(send, sum, cuts, queue, tag, is_added)` with `sum` of any storage
/// type: the sum of this rank's extent, rounded to the type of `send`, replaces the elements of
/// `sum` or is added to them. The engine then saves one pass over the data per reduction.
/// - optional, the same with `SentPieces<T>` in place of `send`, which no rank copies to one
/// address: some ranks may send pieces, and others an address. Elements in no piece count as zeros.
/// The table of pieces must stay valid as long as the memory that it names; commands on `queue` may
/// change its `data`. The engine then reads gradients in tensors of the caller without a copy.
/// - optional, `reduce_scatter(send, sum, cuts, queue, tag)` with an `ops::TreeSum` of any storage
/// type: `sum.out` gets the sum of this rank's extent as a subtree of micro-batches, plus the sums
/// that are held; nothing is rounded before. All ranks pass the same `sum.held.count` and
/// `rank_group`. Compositions with `TreeReduction` need it.
/// - optional, `reason_against_tree()`, const and noexcept: a `std::string_view` that says why the
/// options forbid such a reduce-scatter, and the remedy, without a full stop; empty if they allow
/// it. Engines with `TreeReduction` ask on construction.
/// - with such a reduce-scatter, `position()`, const and noexcept: an `int` from 0 to W - 1,
/// another one on each rank, by which it adds the pieces, and `Engine::micro_batch` numbers: the
/// rank, or the position of the communicator below. Near ranks of `Hierarchical` are not
/// consecutive.
/// - optional, `inadmissible_ranks(tree)`, const and noexcept: a number of consecutive positions
/// that it adds first although they are no node of the `ops::MicroBatchTree`; 0 if there is none.
/// Engines with `TreeReduction` refuse the tree otherwise.
/// - optional, `all_reduce_integers(values, sums, minima, queue, tag)`: the first `sums` integers
/// are replaced by their sums over the ranks, and the next `minima` by their minima, in one
/// collective. A step then sends one message instead of two to decide.
/// - optional, `static constexpr bool compares_calls = true`: ranks that make different calls, or
/// the same with different tags, get CollectiveMismatch. Without it an engine compares its calls
/// between steps by one more all-gather each.
/// - optional, `grouped(queue, body)`: calls `body()`, which calls `all_gather` on `queue` any
/// number of times and does nothing else with the queue. The transport may start them together when
/// `body` returns. An engine publishes updated buckets in this way.
/// - optional, `rethrow_failure()`: throws an error that the transport detected after its calls
/// returned. Call it after waiting for the queue, before using a collective's result
/// (`detail::wait_for_collectives`).
/// - optional, `synchronise()`: waits until the collectives that were called so far have run. For
/// transports whose collectives may overlap when their queues differ; `sum_over_ranks` calls it.
/// - optional, `options_hash()`, const and noexcept: the hash of the options of sums that must be
/// equal on all ranks. Engines compare it on construction.
/// - optional, `scratch_bytes(largest_bucket_bytes)`, const and noexcept: the bytes of
/// `BufferKind::communicator` that the communicator holds if no reduction is larger than
/// `largest_bucket_bytes`, its decorators included. The memory plan shows them in a row of their
/// own.
/// - optional, `shared_memory()`, const and noexcept: the MemoryResource from which engines take
/// their buffers unless `options.memory` names another one.
/// - optional, `shares_process()`, const and noexcept: whether ranks of the group are threads of
/// one process, each with a device of its own. An engine then waits, when a step begins, for the
/// step before the last one: the host must not fill the launch queue of a device while another
/// device waits for a launch.
/// - optional, `ranks_in_process()`, const and noexcept: the number of ranks that are threads of
/// this process, of all groups. Only for transports whose calls block until all ranks have called:
/// an engine then makes a queue without a thread where ranks have no cores for it.
/// - optional, `forget_events()`, noexcept: drops the events that the communicator keeps. Call it
/// when all earlier commands of this rank are ordered before all later ones, as for the capture of
/// a graph, where kept events are invalid.
template <class C>
concept Communicator =
    detail::IsCommunicatorPolicy<C> && detail::HasBackendQueue<C> && detail::HasRankAndSize<C>
    && detail::HasReduceScatter<C> && detail::HasAllGather<C> && detail::HasAllReduce<C>
    && detail::HasBroadcast<C> && detail::HasAllReduceIntegers<C> && detail::HasAbort<C>;

/// @brief Reports each reason why `C` is not a `Communicator` as one error.
template <class C>
consteval bool diagnose_communicator() {
    static_assert(
        detail::HasBackendQueue<C>,
        "zero: a Communicator needs a member type 'Backend' (whose queues it enqueues on).");
    if constexpr (detail::HasBackendQueue<C>) {
        static_assert(detail::HasRankAndSize<C>,
                      "zero: a Communicator needs 'int rank() const' and 'int size() const'.");
        static_assert(
            detail::HasReduceScatter<C>,
            "zero: a Communicator needs 'reduce_scatter(T const* send, T* receive, "
            "std::span<std::size_t const> cuts, Queue, CollectiveTag)' for T = float, bfloat16 "
            "and float16.");
        static_assert(
            detail::HasAllGather<C>,
            "zero: a Communicator needs 'all_gather(T const* send, T* receive, "
            "std::span<std::size_t const> cuts, Queue, CollectiveTag)' for any T of 1, 2, 4 or 8 "
            "bytes.");
        static_assert(
            detail::HasAllReduce<C>,
            "zero: a Communicator needs 'all_reduce(T const* send, T* receive, "
            "std::span<std::size_t const> cuts, Queue, CollectiveTag)' for T = float, bfloat16 "
            "and float16.");
        static_assert(
            detail::HasBroadcast<C>,
            "zero: a Communicator needs 'broadcast(T* buffer, std::size_t elements, int root, "
            "Queue, CollectiveTag)' for any T of 1, 2, 4 or 8 bytes.");
        static_assert(detail::HasAllReduceIntegers<C>,
                      "zero: a Communicator needs 'all_reduce_integers(std::int64_t*, std::size_t, "
                      "IntegerReduction, Queue, CollectiveTag)'.");
        static_assert(detail::HasAbort<C>,
                      "zero: a Communicator needs 'void abort(std::string_view cause, bool "
                      "is_provisional) noexcept'.");
    }
    return Communicator<C>;
}

/// @brief A communicator that moves the pieces of a reduce-scatter without adding them, for code
/// that combines them itself.
///
/// `exchange(send, receive, cuts, queue, tag)` is an operation of `Communicator` in every respect.
/// `send` holds cuts[W] elements, as for a reduce-scatter, and stays as it is; `receive` gets W
/// pieces of this rank's extent: that of rank r begins at element r * (cuts[rank + 1] -
/// cuts[rank]). The elements are those that `all_gather` takes. Extents may differ in size and be
/// empty: a rank whose extent is empty only sends. A rank receives W - 1 pieces from others, which
/// is (W - 1) / W of the payload. It is never in place: memory of `receive` that overlaps `send` is
/// an InvalidArgument for every W, because pieces that arrive would replace pieces not sent yet.
///
/// `Loopback`, `mpi::Communicator`, `torch::ProcessGroupCommunicator` and
/// `cuda::BasicNcclCommunicator` model it, and `Recording`, `Checked` and `Timed` where the
/// communicator below does. `Hierarchical` does not: every piece must cross between groups once, so
/// two levels would send as much there as a flat group, and more inside.
///
/// An author asserts `diagnose_exchanging_communicator<C>()`, and passes `check_exchanges_of` of
/// the conformance suite (`tests/comm/conformance.hpp`).
template <class C>
concept ExchangingCommunicator = Communicator<C> && detail::HasExchange<C>;

/// @brief Reports each reason why `C` is not an `ExchangingCommunicator` as one error.
template <class C>
consteval bool diagnose_exchanging_communicator() {
    if constexpr (!Communicator<C>) {
        return diagnose_communicator<C>();
    } else {
        static_assert(
            detail::HasExchange<C>,
            "zero: an ExchangingCommunicator needs 'exchange(T const* send, T* receive, "
            "std::span<std::size_t const> cuts, Queue, CollectiveTag)' for any T of 1, 2, 4 or 8 "
            "bytes. Hierarchical has none, because every piece crosses between groups in any case: "
            "exchange over a flat group.");
        return ExchangingCommunicator<C>;
    }
}

/// @brief A communicator that can be divided into smaller groups.
///
/// `split(color, key)` is collective over all ranks and not allowed inside a step. It returns, by
/// value, a communicator of the group of all ranks that gave the same `color`. `key` is any number.
/// The transport decides which colors are valid; every transport accepts 0 and above. The
/// ranks of the new group are ordered by `key`, and by their old rank where keys are equal. The
/// communicator that was split remains usable, and so does the new one when the old one is
/// destroyed. An abort or a failure of one of them reaches the group that it was split from and all
/// groups split from that; when a communicator is destroyed, only its own group ends.
///
/// An author asserts `diagnose_splittable_communicator<C>()`, and passes `check_split` of the
/// conformance suite (`tests/comm/split_conformance.hpp`).
template <class C>
concept SplittableCommunicator = Communicator<C> && detail::SplitsIntoItself<C>;

/// @brief Reports each reason why `C` is not a `SplittableCommunicator` as one error.
template <class C>
consteval bool diagnose_splittable_communicator() {
    if constexpr (!Communicator<C>) {
        return diagnose_communicator<C>();
    } else {
        static_assert(detail::HasSplit<C>,
                      "zero: a SplittableCommunicator needs 'C split(int color, int key)'.");
        if constexpr (detail::HasSplit<C>) {
            static_assert(detail::SplitsIntoItself<C>,
                          "zero: 'split' of a SplittableCommunicator must return a communicator of "
                          "its own type, by value.");
        }
        return SplittableCommunicator<C>;
    }
}

} // namespace ZERO_NAMESPACE
