#pragma once

#include "../core/memory_resource.hpp"
#include "fence.hpp"

#include <concepts>
#include <cstddef>

namespace zero {

/// @brief The seam through which everything touches data: queues, events, memory and a few operations that are enqueued.
///
/// All functions are static and are reached through a template parameter. A queue is a small handle of something that lives elsewhere (a
/// CUDA stream, a host queue); an event is a point in a queue, copyable, and complete when default-constructed. Every operation returns at
/// once; pointers have to stay valid until it ran. Beyond this syntax a backend has `fill`, `convert`, `accumulate`, `sum_ranks`,
/// `sum_integers`, `min_integers`, `inspect`, `update` and `copy_from_bucket` as `HostBackend` documents them.
template <class B>
concept Backend = std::copyable<typename B::Queue> && std::copyable<typename B::Event> && std::default_initializable<typename B::Event>
               && requires { typename B::OwnedQueue; }
               && requires(typename B::Queue queue, typename B::OwnedQueue& owned, typename B::Event const& event, void* out, void const* in) {
                      { B::handle(owned) } -> std::same_as<typename B::Queue>;
                      { B::default_compute_queue() } -> std::same_as<typename B::Queue>;
                      { B::default_memory() } -> std::convertible_to<MemoryResource&>;
                      { B::record(queue) } -> std::same_as<typename B::Event>;
                      B::wait(queue, event, Fence::peers_ready);
                      B::synchronize(event);
                      B::rethrow_failure(queue);
                      B::copy_bytes(queue, out, in, std::size_t{});
                  };

} // namespace zero
