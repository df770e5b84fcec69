#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/memory_resource.hpp"
#include "../ops/tree_sum.hpp"
#include "fence.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>

/// @file
/// @brief The requirements of `Backend`, one concept each. The concept and its messages use them.
/// Element-wise operations are checked for float only.

namespace ZERO_NAMESPACE::detail {

template <class B>
concept BackendHasTypes = requires {
    typename B::Queue;
    typename B::Event;
    typename B::OwnedQueue;
};

template <class B>
concept BackendHasCopyableHandles =
    std::copyable<typename B::Queue> && std::copyable<typename B::Event>
    && std::default_initializable<typename B::Event>;

template <class B>
concept BackendHasHandle = requires(typename B::OwnedQueue& owned) {
    { B::handle(owned) } -> std::same_as<typename B::Queue>;
};

template <class B>
concept BackendHasDefaultComputeQueue = requires {
    { B::default_compute_queue() } -> std::same_as<typename B::Queue>;
};

template <class B>
concept BackendHasDefaultMemory = requires {
    { B::default_memory() } -> std::convertible_to<MemoryResource&>;
};

template <class B>
concept BackendHasRecord = requires(typename B::Queue queue) {
    { B::record(queue) } -> std::same_as<typename B::Event>;
};

template <class B>
concept BackendHasWait = requires(typename B::Queue queue, typename B::Event const& event) {
    B::wait(queue, event, Fence::peers_ready);
};

template <class B>
concept BackendHasSynchronise = requires(typename B::Event const& event) { B::synchronise(event); };

template <class B>
concept BackendHasRethrowFailure = requires(typename B::Queue queue) { B::rethrow_failure(queue); };

template <class B>
concept BackendHasCopyBytes = requires(typename B::Queue queue, void* out, void const* in) {
    B::copy_bytes(queue, out, in, std::size_t{});
};

template <class B>
concept BackendHasFill =
    requires(typename B::Queue queue, float* out) { B::fill(queue, out, std::size_t{}, 0.0F); };

template <class B>
concept BackendHasConvert = requires(typename B::Queue queue, float* out, float const* in) {
    B::convert(queue, out, in, std::size_t{}, 1.0F);
};

template <class B>
concept BackendHasAccumulate = requires(typename B::Queue queue, float* sum, float const* in) {
    B::accumulate(queue, sum, in, std::size_t{});
};

template <class B>
concept BackendHasSumRanks =
    requires(typename B::Queue queue, float* out, float const* const* peers) {
        B::sum_ranks(queue, out, peers, 1, std::size_t{});
    };

/// Whether the backend can add a sum over ranks of `T` to elements of `A` in one pass.
template <class B, class A, class T>
concept BackendAddsSums = requires(typename B::Queue queue, A* sum, T const* const* peers) {
    B::sum_ranks(queue, sum, peers, 1, std::size_t{}, true);
};

/// Whether the backend can sum over ranks of `T` as a subtree of micro-batches into `A`.
template <class B, class A, class T>
concept BackendSumsTree =
    requires(typename B::Queue queue, ops::TreeSum<A> const& sum, T const* const* peers) {
        B::sum_tree(queue, sum, peers, 1, std::size_t{});
    };

template <class B>
concept BackendReducesIntegers =
    requires(typename B::Queue queue, std::int64_t* out, std::int64_t const* const* peers) {
        B::sum_integers(queue, out, peers, 1, std::size_t{});
        B::min_integers(queue, out, peers, 1, std::size_t{});
    };

/// @brief Whether a backend combines sums and minima of integers in one operation.
template <class B>
concept BackendReducesIntegersTogether =
    requires(typename B::Queue queue, std::int64_t* out, std::int64_t const* const* peers) {
        B::reduce_integers(queue, out, peers, 1, std::size_t{}, std::size_t{});
    };

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief The interface through which the library touches data: queues, events, memory, and a few
/// operations that are enqueued.
///
/// All functions are static and are called through a template parameter. A queue is a small handle
/// to an object that lives elsewhere, such as a CUDA stream or a host queue. An event is a point in
/// a queue; it is copyable, and complete when default-constructed. Every operation returns at once,
/// and its pointers must stay valid until it has run. An `OwnedQueue` takes any number of commands:
/// if its capacity is limited, it waits for room.
///
/// Beyond this syntax, a backend has `SliceTable`, `run`, `inspect`, `add_to_norms`, `count_zeros`,
/// `update`, `copy_from_bucket` and `copy_to_bucket` as `HostBackend` documents them. The
/// element-wise operations exist for every storage type, not only for float. `run` takes a functor
/// of the library, which is marked to run on a device.
///
/// Optional:
/// - `is_device`: the host cannot read or write the memory.
/// - `BucketScope(FlatLayout const&, std::size_t bucket)`: lives while an engine enqueues work on a
///   bucket; for backends that record.
/// - `copies_arguments`: tables of pointers may be freed when an operation returns.
/// - `staging_memory()`: a `MemoryResource&` of host memory that the device copies quickly;
///   checkpoints pass through a buffer from it.
/// - `Copier`: constructed on the rank's thread; `copier(void* to, void const* from, std::size_t
/// bytes)`
///   copies between memory of the device and the host, on any thread, and waits; for
///   `offload_states`.
/// - `run_on_host(Queue, void (*function)(void*), void* argument)`: enqueues a call on the host,
/// for
///   `HostMemory`; the function throws nothing and waits for no queue.
/// - `rethrow_failure(Event)`: for queues that fail independently.
/// - `drain(Queue)`: for queues where waiting for a recorded event does not suffice.
/// - `sum_ranks(Queue, A* sum, T const* const* peers, int world, std::size_t elements, bool
/// is_added)`: the sum and its accumulation in one pass, with the bits of `sum_ranks`, and
/// `convert` or `accumulate`.
/// - `sum_tree(Queue, ops::TreeSum<A> const&, T const* const* peers, int world, std::size_t
/// elements)`: the sum over ranks as a subtree of micro-batches, for `TreeReduction`.
/// - `reduce_integers(Queue, std::int64_t* out, std::int64_t const* const* peers, int world,
/// std::size_t sums, std::size_t minima)`: `sum_integers` of the first `sums` integers and
/// `min_integers` of the next `minima`.
/// - `require_queue(Queue)`: rejects a queue that cannot be used.
/// - `require_arithmetic(Queue)` or `require_arithmetic()`: rejects code that was compiled with
///   other rounding rules.
template <class B>
concept Backend =
    detail::BackendHasTypes<B> && detail::BackendHasCopyableHandles<B>
    && detail::BackendHasHandle<B> && detail::BackendHasDefaultComputeQueue<B>
    && detail::BackendHasDefaultMemory<B> && detail::BackendHasRecord<B>
    && detail::BackendHasWait<B> && detail::BackendHasSynchronise<B>
    && detail::BackendHasRethrowFailure<B> && detail::BackendHasCopyBytes<B>
    && detail::BackendHasFill<B> && detail::BackendHasConvert<B> && detail::BackendHasAccumulate<B>
    && detail::BackendHasSumRanks<B> && detail::BackendReducesIntegers<B>;

/// @brief Reports each reason why `B` is not a `Backend` as one error.
template <class B>
consteval bool diagnose_backend() {
    static_assert(detail::BackendHasTypes<B>,
                  "zero: a Backend needs the member types 'Queue' (a handle), 'Event' "
                  "and 'OwnedQueue' (what an engine makes for itself).");
    if constexpr (detail::BackendHasTypes<B>) {
        static_assert(detail::BackendHasCopyableHandles<B>,
                      "zero: a Backend's Queue and Event must be copyable, and an Event "
                      "complete when default-constructed.");
        static_assert(detail::BackendHasHandle<B>,
                      "zero: a Backend needs 'static Queue handle(OwnedQueue&)'.");
        static_assert(detail::BackendHasDefaultComputeQueue<B>,
                      "zero: a Backend needs 'static Queue default_compute_queue()'.");
        static_assert(detail::BackendHasDefaultMemory<B>,
                      "zero: a Backend needs 'static MemoryResource& default_memory()'.");
        static_assert(detail::BackendHasRecord<B>,
                      "zero: a Backend needs 'static Event record(Queue)'.");
        static_assert(detail::BackendHasWait<B>,
                      "zero: a Backend needs 'static void wait(Queue, Event const&, Fence)'.");
        static_assert(detail::BackendHasSynchronise<B>,
                      "zero: a Backend needs 'static void synchronise(Event const&)'.");
        static_assert(detail::BackendHasRethrowFailure<B>,
                      "zero: a Backend needs 'static void rethrow_failure(Queue)'.");
        static_assert(detail::BackendHasCopyBytes<B>,
                      "zero: a Backend needs 'static void copy_bytes(Queue, void* out, void const* "
                      "in, std::size_t bytes)'.");
        static_assert(detail::BackendHasFill<B>,
                      "zero: a Backend needs 'static void fill(Queue, T* out, std::size_t "
                      "elements, T value)'.");
        static_assert(detail::BackendHasConvert<B>,
                      "zero: a Backend needs 'static void convert(Queue, To* out, From const* in, "
                      "std::size_t elements, float factor)'.");
        static_assert(detail::BackendHasAccumulate<B>,
                      "zero: a Backend needs 'static void accumulate(Queue, To* sum, From const* "
                      "in, std::size_t elements)'.");
        static_assert(detail::BackendHasSumRanks<B>,
                      "zero: a Backend needs 'static void sum_ranks(Queue, T* out, T const* const* "
                      "peers, int world, std::size_t elements)'.");
        static_assert(detail::BackendReducesIntegers<B>,
                      "zero: a Backend needs 'sum_integers' and 'min_integers' (Queue, "
                      "std::int64_t* out, std::int64_t const* const* peers, int world, "
                      "std::size_t elements).");
    }
    return Backend<B>;
}

} // namespace ZERO_NAMESPACE
