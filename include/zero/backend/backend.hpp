#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/memory_resource.hpp"
#include "fence.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief The seam through which everything touches data: queues, events, memory and a few
/// operations that are enqueued.
///
/// All functions are static and are reached through a template parameter. A queue is a small handle
/// of something that lives elsewhere (a CUDA stream, a host queue); an event is a point in a queue,
/// copyable, and complete when default-constructed. Every operation returns at once; pointers have
/// to stay valid until it ran. Beyond this syntax a backend has `Table`, `run`, `inspect`,
/// `add_to_norms`, `update`, `copy_from_bucket` and `copy_to_bucket` as `HostBackend` documents
/// them, and the element-wise operations for every storage type, not only for float. What `run`
/// takes is a functor of the library's, marked to run on a device, too.
///
/// Optional: `is_device` (the host cannot read or write the memory), `copies_arguments` (tables of
/// pointers are free when an operation returns) `rethrow_failure(Event)`, for queues that fail
/// alone, `drain(Queue)`, where waiting for a recorded event may not do, `require_queue(Queue)`,
/// which refuses one that cannot be used, and `require_arithmetic(Queue)`, which refuses a device
/// whose code was compiled with other rules of rounding.
template <class B>
concept Backend =
    std::copyable<typename B::Queue> && std::copyable<typename B::Event>
    && std::default_initializable<typename B::Event> && requires { typename B::OwnedQueue; }
    && requires(typename B::Queue queue, typename B::OwnedQueue& owned, typename B::Event const& event, void* out, void const* in) {
           { B::handle(owned) } -> std::same_as<typename B::Queue>;
           { B::default_compute_queue() } -> std::same_as<typename B::Queue>;
           { B::default_memory() } -> std::convertible_to<MemoryResource&>;
           { B::record(queue) } -> std::same_as<typename B::Event>;
           B::wait(queue, event, Fence::peers_ready);
           B::synchronise(event);
           B::rethrow_failure(queue);
           B::copy_bytes(queue, out, in, std::size_t{});
       } && requires(typename B::Queue queue, float* out, float const* in, float const* const* peers, std::int64_t* integers, std::int64_t const* const* integer_peers) {
           B::fill(queue, out, std::size_t{}, 0.0F);
           B::convert(queue, out, in, std::size_t{}, 1.0F);
           B::accumulate(queue, out, in, std::size_t{});
           B::sum_ranks(queue, out, peers, 1, std::size_t{});
           B::sum_integers(queue, integers, integer_peers, 1, std::size_t{});
           B::min_integers(queue, integers, integer_peers, 1, std::size_t{});
       };

/// @brief Reports each reason why `B` is not a `Backend` as one error.
template <class B>
consteval bool diagnose_backend() {
    constexpr bool has_types = requires {
        typename B::Queue;
        typename B::Event;
        typename B::OwnedQueue;
    };
    static_assert(has_types, "zero: a Backend needs the member types 'Queue' (a handle), 'Event' "
                             "and 'OwnedQueue' (what an engine makes for itself).");
    if constexpr (has_types) {
        using Queue = typename B::Queue;
        using Event = typename B::Event;
        static_assert(std::copyable<Queue> && std::copyable<Event>
                          && std::default_initializable<Event>,
                      "zero: a Backend's Queue and Event must be copyable, and an Event "
                      "complete when default-constructed.");
        static_assert(
            requires(typename B::OwnedQueue& owned) {
                { B::handle(owned) } -> std::same_as<Queue>;
            }, "zero: a Backend needs 'static Queue handle(OwnedQueue&)'.");
        static_assert(
            requires {
                { B::default_compute_queue() } -> std::same_as<Queue>;
            }, "zero: a Backend needs 'static Queue default_compute_queue()'.");
        static_assert(
            requires {
                { B::default_memory() } -> std::convertible_to<MemoryResource&>;
            }, "zero: a Backend needs 'static MemoryResource& default_memory()'.");
        static_assert(
            requires(Queue queue) {
                { B::record(queue) } -> std::same_as<Event>;
            }, "zero: a Backend needs 'static Event record(Queue)'.");
        static_assert(
            requires(Queue queue, Event const& event) {
                B::wait(queue, event, Fence::peers_ready);
            }, "zero: a Backend needs 'static void wait(Queue, Event const&, Fence)'.");
        static_assert(
            requires(Event const& event) { B::synchronise(event); },
            "zero: a Backend needs 'static void synchronise(Event const&)'.");
        static_assert(
            requires(Queue queue) { B::rethrow_failure(queue); },
            "zero: a Backend needs 'static void rethrow_failure(Queue)'.");
        static_assert(
            requires(Queue queue, void* out, void const* in) {
                B::copy_bytes(queue, out, in, std::size_t{});
            }, "zero: a Backend needs 'static void copy_bytes(Queue, void* out, void const* in, "
               "std::size_t bytes)'.");
        static_assert(
            requires(Queue queue, float* out) { B::fill(queue, out, std::size_t{}, 0.0F); },
            "zero: a Backend needs 'static void fill(Queue, T* out, std::size_t elements, T "
            "value)'.");
        static_assert(
            requires(Queue queue, float* out, float const* in) {
                B::convert(queue, out, in, std::size_t{}, 1.0F);
            }, "zero: a Backend needs 'static void convert(Queue, To* out, From const* in, "
               "std::size_t elements, float factor)'.");
        static_assert(
            requires(Queue queue, float* sum, float const* in) {
                B::accumulate(queue, sum, in, std::size_t{});
            }, "zero: a Backend needs 'static void accumulate(Queue, To* sum, From const* in, "
               "std::size_t elements)'.");
        static_assert(
            requires(Queue queue, float* out, float const* const* peers) {
                B::sum_ranks(queue, out, peers, 1, std::size_t{});
            }, "zero: a Backend needs 'static void sum_ranks(Queue, T* out, T const* const* peers, "
               "int world, std::size_t elements)'.");
        static_assert(
            requires(Queue queue, std::int64_t* out, std::int64_t const* const* peers) {
                B::sum_integers(queue, out, peers, 1, std::size_t{});
                B::min_integers(queue, out, peers, 1, std::size_t{});
            }, "zero: a Backend needs 'sum_integers' and 'min_integers' (Queue, std::int64_t* out, "
               "std::int64_t const* const* peers, int world, std::size_t elements).");
    }
    return Backend<B>;
}

} // namespace ZERO_NAMESPACE
