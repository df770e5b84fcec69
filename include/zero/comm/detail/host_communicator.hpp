#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/dtype.hpp"
#include "../../core/memory_resource.hpp"
#include "../../core/policy_category.hpp"
#include "../../core/storage_types.hpp"
#include "../../host/host_backend.hpp"
#include "../../host/inline_queue.hpp"
#include "../../ops/tree_sum.hpp"
#include "../collective_tag.hpp"
#include "../communicator.hpp"
#include "../traffic_count.hpp"
#include "collective_call.hpp"
#include "flight.hpp"
#include "group_place.hpp"
#include "shared_memory.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace ZERO_NAMESPACE::detail {

/// @brief `SumPieces` by the kernel of the loopback: the sum of `T`, rounded to `T`.
template <StorageType T>
void sum_pieces(void* out, ops::HeldSums const& /*none*/, std::size_t begin,
                void const* const* pieces, int world, std::size_t elements) {
    host::InlineQueue queue;
    HostBackend::sum_ranks(&queue, static_cast<T*>(out) + begin, typed_pieces<T>(pieces, world),
                           world, elements);
}

/// @brief `SumPieces` by the kernel of the loopback: the same sum replaces elements of `A`, or is
/// added to them.
template <StorageType T, StorageType A, bool is_added>
void accumulate_pieces(void* out, ops::HeldSums const& /*none*/, std::size_t begin,
                       void const* const* pieces, int world, std::size_t elements) {
    host::InlineQueue queue;
    HostBackend::sum_ranks(&queue, static_cast<A*>(out) + begin, typed_pieces<T>(pieces, world),
                           world, elements, is_added);
}

/// @brief `SumPieces` by the kernel of the loopback: a subtree of micro-batches, converted to `A`.
template <StorageType T, StorageType A>
void sum_tree_pieces(void* out, ops::HeldSums const& held, std::size_t begin,
                     void const* const* pieces, int world, std::size_t elements) {
    host::InlineQueue queue;
    HostBackend::sum_tree(&queue, ops::TreeSum<A>{static_cast<A*>(out) + begin, held.from(begin)},
                          typed_pieces<T>(pieces, world), world, elements);
}

/// @brief The operations of a communicator between processes, for memory on the host: checks the
/// arguments, counts the traffic, and hands each call without its types to `Collectives`, which
/// enqueues it.
/// @tparam Collectives has `place()`, `scratch_bytes()`, `shared()`,
/// `enqueue(call, memory, queue)`, `abort(cause, is_provisional)` and `rethrow_failure()`
template <class Collectives>
class HostCommunicator {
public:
    using policy_category = CommunicatorCategory;
    using Backend = HostBackend;
    using Queue = Backend::Queue;
    static constexpr bool compares_calls = requires { requires Collectives::compares_calls; };

    [[nodiscard]] int rank() const noexcept { return static_cast<int>(place().rank); }
    [[nodiscard]] int size() const noexcept { return static_cast<int>(place().world); }

    /// @brief See `Communicator`: the rank.
    [[nodiscard]] int position() const noexcept { return rank(); }

    /// @brief Returns the bytes of scratch memory that this communicator holds, whatever the size
    /// of the largest bucket is: collectives are cut to fit.
    [[nodiscard]] std::size_t scratch_bytes(std::size_t /*largest_bucket_bytes*/) const noexcept {
        return _collectives->scratch_bytes() + _collectives->shared().bytes();
    }

    /// @brief Returns the resource from which engines take the buffers that peers read in place. It
    /// lives as long as this communicator and those that were split from the same one. Blocks take
    /// whole pages. Without peers on this host it is `HostBackend::default_memory()`.
    [[nodiscard]] MemoryResource& shared_memory() const noexcept {
        MemoryResource* const shared = _collectives->shared().memory();
        return shared != nullptr ? *shared : HostBackend::default_memory();
    }

    /// @brief Returns why the ranks send messages where they could read one another's memory; empty
    /// if they read it.
    [[nodiscard]] std::string const& reason_for_messages() const noexcept {
        return _collectives->shared().reason();
    }

    /// @brief See `Communicator`. @throws CommunicatorError; InvalidArgument before anything is
    /// enqueued
    template <class T>
    void reduce_scatter(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                        CollectiveTag tag = {}) {
        scatter<T>(send, receive, cuts, queue, tag, sum_of<T>(sum_pieces<T>));
    }

    /// @brief A reduce-scatter whose result replaces the elements of `sum` or is added to them.
    /// Optional operation of a `Communicator`.
    template <StorageType T, StorageType A>
    void reduce_scatter(T const* send, A* sum, std::span<std::size_t const> cuts, Queue queue,
                        CollectiveTag tag, bool is_added) {
        scatter<T>(
            send, sum, cuts, queue, tag,
            sum_of<T>(is_added ? accumulate_pieces<T, A, true> : accumulate_pieces<T, A, false>));
    }

    /// @brief A reduce-scatter that adds as a subtree of micro-batches. Optional operation of a
    /// `Communicator`.
    template <StorageType T, StorageType A>
    void reduce_scatter(T const* send, ops::TreeSum<A> const& sum,
                        std::span<std::size_t const> cuts, Queue queue, CollectiveTag tag = {}) {
        scatter<T>(send, sum.out, cuts, queue, tag,
                   ExtentSum{sum_tree_pieces<T, A>, true, false, sum.held});
    }

    /// @copydoc reduce_scatter
    template <class T>
    void all_gather(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                    CollectiveTag tag = {}) {
        auto const call = place().all_gather(dtype_of<T>(), send, receive, cuts, tag);
        enqueue(call, send, receive, sizeof(T), cuts, queue);
        _traffic.add(call.kind, call.count - place().own(cuts), sizeof(T));
    }

    /// @brief See `ExchangingCommunicator`. @throws as `reduce_scatter`
    template <class T>
    void exchange(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                  CollectiveTag tag = {}) {
        auto const call = place().exchange(dtype_of<T>(), send, receive, cuts, tag);
        enqueue(call, send, receive, sizeof(T), cuts, queue);
        _traffic.add(call.kind, place().own(cuts) * (place().world - 1), sizeof(T));
    }

    /// @copydoc reduce_scatter
    template <class T>
    void all_reduce(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                    CollectiveTag tag = {}) {
        auto const call = place().all_reduce(dtype_of<T>(), send, receive, cuts, tag);
        enqueue(call, send, receive, sizeof(T), cuts, queue, sum_of<T>(sum_pieces<T>));
        std::size_t const own = place().own(cuts);
        _traffic.add(call.kind, own * (place().world - 1) + (call.count - own), sizeof(T));
    }

    /// @copydoc reduce_scatter
    template <class T>
    void broadcast(T* buffer, std::size_t elements, int root, Queue queue, CollectiveTag tag = {}) {
        auto const call = place().broadcast(dtype_of<T>(), buffer, elements, root, tag);
        enqueue(call, buffer, buffer, sizeof(T), {}, queue);
        _traffic.add(call.kind, root == rank() ? 0 : elements, sizeof(T));
    }

    /// @copydoc reduce_scatter
    void all_reduce_integers(std::int64_t* values, std::size_t elements, IntegerReduction reduction,
                             Queue queue, CollectiveTag tag = {}) {
        auto const call = place().integers(values, elements, reduction, tag);
        enqueue(call, values, values, sizeof(std::int64_t), {}, queue);
        _traffic.add(call.kind, elements * (place().world - 1), sizeof(std::int64_t));
    }

    /// @brief Sums the first `sums` integers and minimises the next `minima`. Optional operation of
    /// a `Communicator`.
    void all_reduce_integers(std::int64_t* values, std::size_t sums, std::size_t minima,
                             Queue queue, CollectiveTag tag = {})
        requires requires { requires Collectives::reduces_integers_together; }
    {
        auto const call = place().integers(values, sums, minima, tag);
        enqueue(call, values, values, sizeof(std::int64_t), {}, queue);
        _traffic.add(call.kind, call.count * (place().world - 1), sizeof(std::int64_t));
    }

    void abort(std::string_view cause, bool is_provisional = false) noexcept {
        _collectives->abort(cause, is_provisional);
    }

    /// @brief See `Communicator`. @throws Aborted, CollectiveMismatch
    void rethrow_failure() { _collectives->rethrow_failure(); }

    /// @brief Returns the elements and bytes that this rank received from others, by the formula of
    /// each operation, as `Loopback` counts them. Only for the thread of this rank.
    [[nodiscard]] TrafficCount const& traffic() const noexcept { return _traffic; }

    /// @brief Resets the counts.
    void reset_traffic() noexcept { _traffic = {}; }

protected:
    explicit HostCommunicator(std::unique_ptr<Collectives> collectives) noexcept
        : _collectives(std::move(collectives)) {}

    /// @brief Gives up the collectives: the last use of this object.
    [[nodiscard]] std::unique_ptr<Collectives> release() noexcept {
        return std::move(_collectives);
    }

    [[nodiscard]] Collectives& collectives() noexcept { return *_collectives; }
    [[nodiscard]] Collectives const& collectives() const noexcept { return *_collectives; }

private:
    [[nodiscard]] GroupPlace place() const noexcept { return _collectives->place(); }

    template <class T>
    [[nodiscard]] static ExtentSum sum_of(SumPieces add) noexcept {
        static_assert(StorageType<T>, "zero: a communicator sums float, bfloat16 and float16; "
                                      "integers go through all_reduce_integers.");
        return {.add = add};
    }

    template <class T>
    void scatter(T const* send, void* receive, std::span<std::size_t const> cuts, Queue queue,
                 CollectiveTag tag, ExtentSum const& sum) {
        auto const call = place().reduce_scatter(dtype_of<T>(), send, receive, cuts, tag);
        enqueue(call, send, receive, sizeof(T), cuts, queue, sum);
        _traffic.add(call.kind, place().own(cuts) * (place().world - 1), sizeof(T));
    }

    void enqueue(CollectiveCall const& call, void const* send, void* receive,
                 std::size_t element_bytes, std::span<std::size_t const> cuts, Queue queue,
                 ExtentSum const& sum = {}) {
        Backend::rethrow_failure(queue);
        rethrow_failure();
        _collectives->enqueue(call, {send, receive, element_bytes, cuts, sum}, queue);
    }

    std::unique_ptr<Collectives> _collectives;
    TrafficCount _traffic;
};

} // namespace ZERO_NAMESPACE::detail
