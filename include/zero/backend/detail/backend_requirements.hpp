#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/memory_resource.hpp"
#include "../fence.hpp"

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
