#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/dtype.hpp"
#include "../core/policy_category.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace ZERO_NAMESPACE {

/// @brief What a collective is for, in messages; also compared between ranks by transports that
/// check.
struct CollectiveTag {
    char const* what = ""; ///< as a message names it: "bucket", "unit", ...; static text
    std::size_t index = 0; ///< which of them
};

/// @brief What `all_reduce_integers` makes of the ranks' values.
enum class IntegerReduction : std::uint8_t { sum, min };

/// @brief A policy that moves data between the W ranks of a group.
///
/// All operations are collective: every rank of the group calls them in the same order with the
/// same type, counts and tag. They may block until the other ranks called, but enqueue the movement
/// of data on `queue`: buffers have to live, and must not be touched by other queues, until an
/// event recorded after the call; `cuts` and what `tag` points to have to live until the call
/// returns. Counts are elements. `cuts` are W + 1 offsets from 0, monotone, the same on every rank;
/// rank r has the extent [cuts[r], cuts[r + 1]), which may be empty. Sums are of float, bfloat16
/// and float16; the others also move 64-bit integers and bytes.
///
/// - `reduce_scatter(send, receive, cuts, queue, tag)`: `send` holds cuts[W] elements, `receive`
/// gets the sum of this rank's extent. In place: receive == send + cuts[rank].
/// - `all_gather(send, receive, cuts, queue, tag)`: `send` is this rank's extent, `receive` gets
/// all. In place: send == receive + cuts[rank].
/// - `all_reduce(send, receive, cuts, queue, tag)`: the sum of everything; same bits as the two
/// above. In place: receive == send.
/// - `broadcast(buffer, elements, root, queue, tag)`.
/// - `all_reduce_integers(values, elements, reduction, queue, tag)`: exact, in place.
/// - `abort(cause, is_provisional)`: releases every rank from every collective with `Aborted`; may
/// be called from any thread. A provisional cause may be replaced for
///   a moment.
/// - optional, `rethrow_failure()`: throws what the transport noticed after its calls had returned.
/// Who waited for the queue calls it before believing what a collective gave
/// (`detail::wait_for_collectives`).
/// - optional, `options_hash()`, noexcept, const: of options of `all_reduce` that all ranks have to
/// choose alike. Engines of stage 0 compare it when they are constructed.
/// - optional, `forget_events()`, noexcept: all that this rank enqueued is ordered before all that
/// it will, so events kept of it can go. For the capture of graphs, where they are void.
template <class C>
concept Communicator =
    std::same_as<typename C::policy_category, CommunicatorCategory>
    && requires { typename C::Backend; }
    && requires(C& communicator, C const& constant, float const* send, float* receive,
                bfloat16 const* send_half, bfloat16* receive_half,
                std::span<std::size_t const> cuts, std::int64_t* integers,
                typename C::Backend::Queue queue, CollectiveTag tag) {
           { constant.rank() } -> std::convertible_to<int>;
           { constant.size() } -> std::convertible_to<int>;
           communicator.reduce_scatter(send, receive, cuts, queue, tag);
           communicator.reduce_scatter(send_half, receive_half, cuts, queue, tag);
           communicator.all_gather(send, receive, cuts, queue, tag);
           communicator.all_gather(static_cast<std::int64_t const*>(integers), integers, cuts,
                                   queue, tag);
           communicator.all_reduce(send, receive, cuts, queue, tag);
           communicator.all_reduce(send_half, receive_half, cuts, queue, tag);
           communicator.broadcast(receive, std::size_t{}, 0, queue, tag);
           communicator.broadcast(integers, std::size_t{}, 0, queue, tag);
           communicator.all_reduce_integers(integers, std::size_t{}, IntegerReduction::sum, queue,
                                            tag);
           { communicator.abort(std::string_view(), true) } noexcept;
       };

/// @brief Reports each reason why `C` is not a `Communicator` as one error.
template <class C>
consteval bool diagnose_communicator() {
    constexpr bool has_backend = requires { typename C::Backend::Queue; };
    static_assert(
        has_backend,
        "zero: a Communicator needs a member type 'Backend' (whose queues it enqueues on).");
    if constexpr (has_backend) {
        using Queue = typename C::Backend::Queue;
        using Cuts = std::span<std::size_t const>;
        using Integer = std::int64_t;
        using Half = bfloat16;
        static_assert(
            requires(C const& c) {
                { c.rank() } -> std::convertible_to<int>;
                { c.size() } -> std::convertible_to<int>;
            }, "zero: a Communicator needs 'int rank() const' and 'int size() const'.");
        static_assert(
            requires(C& c, float const* s, float* r, Half const* t, Half* u, Cuts cuts, Queue q) {
                c.reduce_scatter(s, r, cuts, q, CollectiveTag{});
                c.reduce_scatter(t, u, cuts, q, CollectiveTag{});
            }, "zero: a Communicator needs 'reduce_scatter(T const* send, T* receive, "
               "std::span<std::size_t const> cuts, Queue, CollectiveTag)' for T = float, bfloat16 "
               "and float16.");
        static_assert(
            requires(C& c, float const* s, float* r, Integer const* t, Integer* u, Cuts cuts,
                     Queue q) {
                c.all_gather(s, r, cuts, q, CollectiveTag{});
                c.all_gather(t, u, cuts, q, CollectiveTag{});
            },
            "zero: a Communicator needs 'all_gather(T const* send, T* receive, "
            "std::span<std::size_t const> cuts, Queue, CollectiveTag)' for any T of 1, 2, 4 or 8 "
            "bytes.");
        static_assert(
            requires(C& c, float const* s, float* r, Half const* t, Half* u, Cuts cuts, Queue q) {
                c.all_reduce(s, r, cuts, q, CollectiveTag{});
                c.all_reduce(t, u, cuts, q, CollectiveTag{});
            }, "zero: a Communicator needs 'all_reduce(T const* send, T* receive, "
               "std::span<std::size_t const> cuts, Queue, CollectiveTag)' for T = float, bfloat16 "
               "and float16.");
        static_assert(
            requires(C& c, float* b, Integer* i, Queue q) {
                c.broadcast(b, std::size_t{}, 0, q, CollectiveTag{});
                c.broadcast(i, std::size_t{}, 0, q, CollectiveTag{});
            }, "zero: a Communicator needs 'broadcast(T* buffer, std::size_t elements, int root, "
               "Queue, CollectiveTag)' for any T of 1, 2, 4 or 8 bytes.");
        static_assert(
            requires(C& c, Integer* v, Queue q) {
                c.all_reduce_integers(v, std::size_t{}, IntegerReduction::sum, q, CollectiveTag{});
            }, "zero: a Communicator needs 'all_reduce_integers(std::int64_t*, std::size_t, "
               "IntegerReduction, Queue, CollectiveTag)'.");
        static_assert(
            requires(C& c) {
                { c.abort(std::string_view(), true) } noexcept;
            }, "zero: a Communicator needs 'void abort(std::string_view cause, bool "
               "is_provisional) noexcept'.");
    }
    return Communicator<C>;
}

} // namespace ZERO_NAMESPACE
