#pragma once

#include "../core/dtype.hpp"
#include "../core/policy_category.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace zero {

/// @brief What a collective is for, in messages; also compared between ranks by transports that check.
struct CollectiveTag {
    char const* what = "";
    std::size_t index = 0;
};

enum class IntegerReduction : std::uint8_t { sum, min };

/// @brief A policy that moves data between the W ranks of a group.
///
/// All operations are collective: every rank of the group calls them in the same order with the same type, counts and tag. They enqueue on
/// `queue`; buffers have to live, and must not be touched by other queues, until an event recorded after the call. Counts are elements.
/// `cuts` are W + 1 monotone offsets, the same on every rank; rank r has the extent [cuts[r], cuts[r + 1]), which may be empty.
///
/// - `reduce_scatter(send, receive, cuts, queue, tag)`: `send` holds cuts[W] elements, `receive` gets the sum of this rank's extent. In place: receive == send + cuts[rank].
/// - `all_gather(send, receive, cuts, queue, tag)`: `send` is this rank's extent, `receive` gets all. In place: send == receive + cuts[rank].
/// - `all_reduce(send, receive, cuts, queue, tag)`: the sum of everything; same bits as the two above. In place: receive == send.
/// - `broadcast(buffer, elements, root, queue, tag)`.
/// - `all_reduce_integers(values, elements, reduction, queue, tag)`: exact, in place.
/// - `abort(cause, is_provisional)`: releases every rank from every collective with `Aborted`. A provisional cause may be replaced for a moment.
template <class C>
concept Communicator = std::same_as<typename C::policy_category, CommunicatorCategory> && requires { typename C::Backend; }
                    && requires(C& communicator, C const& constant, float const* send, float* receive, std::span<std::size_t const> cuts, std::int64_t* integers,
                                typename C::Backend::Queue queue, CollectiveTag tag) {
                           { constant.rank() } -> std::convertible_to<int>;
                           { constant.size() } -> std::convertible_to<int>;
                           communicator.reduce_scatter(send, receive, cuts, queue, tag);
                           communicator.all_gather(send, receive, cuts, queue, tag);
                           communicator.all_reduce(send, receive, cuts, queue, tag);
                           communicator.broadcast(receive, std::size_t{}, 0, queue, tag);
                           communicator.all_reduce_integers(integers, std::size_t{}, IntegerReduction::sum, queue, tag);
                           { communicator.abort(std::string_view(), true) } noexcept;
                       };

/// @brief Reports each reason why `C` is not a `Communicator` as one error.
template <class C>
consteval bool diagnose_communicator() {
    constexpr bool has_backend = requires { typename C::Backend::Queue; };
    static_assert(has_backend, "zero: a Communicator needs a member type 'Backend' (whose queues it enqueues on).");
    if constexpr (has_backend) {
        using Queue = typename C::Backend::Queue;
        static_assert(requires(C const& c) { { c.rank() } -> std::convertible_to<int>; { c.size() } -> std::convertible_to<int>; },
                      "zero: a Communicator needs 'int rank() const' and 'int size() const'.");
        static_assert(requires(C& c, float const* s, float* r, std::span<std::size_t const> cuts, Queue q) { c.reduce_scatter(s, r, cuts, q, CollectiveTag{}); },
                      "zero: a Communicator needs 'reduce_scatter(T const* send, T* receive, std::span<std::size_t const> cuts, Queue, CollectiveTag)'.");
        static_assert(requires(C& c, float const* s, float* r, std::span<std::size_t const> cuts, Queue q) { c.all_gather(s, r, cuts, q, CollectiveTag{}); },
                      "zero: a Communicator needs 'all_gather(T const* send, T* receive, std::span<std::size_t const> cuts, Queue, CollectiveTag)'.");
        static_assert(requires(C& c, float const* s, float* r, std::span<std::size_t const> cuts, Queue q) { c.all_reduce(s, r, cuts, q, CollectiveTag{}); },
                      "zero: a Communicator needs 'all_reduce(T const* send, T* receive, std::span<std::size_t const> cuts, Queue, CollectiveTag)'.");
        static_assert(requires(C& c, float* b, Queue q) { c.broadcast(b, std::size_t{}, 0, q, CollectiveTag{}); },
                      "zero: a Communicator needs 'broadcast(T* buffer, std::size_t elements, int root, Queue, CollectiveTag)'.");
        static_assert(requires(C& c, std::int64_t* v, Queue q) { c.all_reduce_integers(v, std::size_t{}, IntegerReduction::sum, q, CollectiveTag{}); },
                      "zero: a Communicator needs 'all_reduce_integers(std::int64_t*, std::size_t, IntegerReduction, Queue, CollectiveTag)'.");
        static_assert(requires(C& c) { { c.abort(std::string_view(), true) } noexcept; },
                      "zero: a Communicator needs 'void abort(std::string_view cause, bool is_provisional) noexcept'.");
    }
    return Communicator<C>;
}

} // namespace zero
