#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/policy_category.hpp"
#include "../../core/storage_types.hpp"
#include "../collective_tag.hpp"
#include "../integer_reduction.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

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

template <class C>
concept HasAbort = requires(C& communicator) {
    { communicator.abort(std::string_view(), true) } noexcept;
};

} // namespace ZERO_NAMESPACE::detail
