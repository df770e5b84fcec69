#pragma once

#include "../backend/backend.hpp"
#include "../backend/fence.hpp"
#include "../backend/slices.hpp"
#include "../backend/update_decision.hpp"
#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/error.hpp"
#include "../core/host_memory_resource.hpp"
#include "../core/memory_resource.hpp"
#include "../ops/exact_sum.hpp"
#include "../ops/norm.hpp"
#include "detail/copy_loop.hpp"
#include "inline_queue.hpp"
#include "kernels.hpp"
#include "slice_table.hpp"
#include "tensor.hpp"
#include "threaded_queue.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace ZERO_NAMESPACE {

/// @brief The host as a backend: queues of commands, and every operation through which the engine
/// and the transports touch data.
///
/// Static functions of a type that is always reached through a template parameter: a test derives
/// from it and replaces one.
struct HostBackend {
    using Queue = host::Queue*;
    using Event = host::Event;
    using OwnedQueue = host::ThreadedQueue; ///< what an engine makes for its communication

    /// @brief Slices that `inspect`, `update` and the like walk: `Table(queue, memory, slices)`,
    /// and `range(first, count)` is what they take.
    template <class Slice>
    using SliceTable = host::SliceTable<Slice>;

    static Queue handle(OwnedQueue& queue) noexcept { return &queue; }

    /// @brief The calling thread.
    static Queue default_compute_queue() noexcept {
        static host::InlineQueue queue; // stateless, so ranks may share it
        return &queue;
    }

    static MemoryResource& default_memory() noexcept {
        static HostMemoryResource memory;
        return memory;
    }

    /// @brief Every queue of the caller's own goes through here first. @throws InvalidArgument for
    /// a null pointer
    static void require_queue(Queue queue) {
        if (queue == nullptr) {
            throw InvalidArgument("zero: a queue is a null pointer; give the address of a host "
                                  "queue, or leave it out for the default.");
        }
    }

    static Event record(Queue queue) { return queue->record(); }
    static void wait(Queue queue, Event const& event, Fence) { queue->wait(event); }
    static void synchronise(Event const& event) { event.synchronise(); }
    static void rethrow_failure(Queue queue) { queue->rethrow_failure(); }
    static void rethrow_failure(Event const& event) { event.rethrow_failure(); }

    /// @brief Reads one value on the host; what wrote it is complete.
    template <class T>
    static T load(T const* value) {
        return *value;
    }

    template <class F>
    static void run(Queue queue, F const& functor) {
        queue->enqueue(functor);
    }

    template <class T>
    static void fill(Queue queue, T* out, std::size_t elements, T value) {
        if (elements != 0) {
            queue->enqueue([=] {
                for (std::size_t i = 0; i < elements; ++i) {
                    out[i] = value;
                }
            });
        }
    }

    static void copy_bytes(Queue queue, void* out, void const* in, std::size_t bytes) {
        if (bytes != 0 && out != in) {
            queue->enqueue([=] { host::detail::copy(out, in, bytes, 2 * bytes); });
        }
    }

    template <class To, class From>
    static void convert(Queue queue, To* out, From const* in, std::size_t elements, float factor) {
        if (elements != 0) {
            queue->enqueue([=] { host::convert(out, in, elements, factor); });
        }
    }

    template <class To, class From>
    static void accumulate(Queue queue, To* sum, From const* in, std::size_t elements) {
        if (elements != 0) {
            queue->enqueue([=] { host::accumulate(sum, in, elements); });
        }
    }

    /// @param peers W pointers that stay valid until the command ran
    template <class T>
    static void sum_ranks(Queue queue, T* out, T const* const* peers, int world,
                          std::size_t elements) {
        queue->enqueue([=] { host::sum_ranks(out, peers, world, elements); });
    }

    static void sum_integers(Queue queue, std::int64_t* out, std::int64_t const* const* peers,
                             int world, std::size_t elements) {
        queue->enqueue([=] {
            for (std::size_t i = 0; i < elements; ++i) {
                std::int64_t sum = 0;
                for (int rank = 0; rank < world; ++rank) {
                    sum += peers[rank][i];
                }
                out[i] = sum;
            }
        });
    }

    static void min_integers(Queue queue, std::int64_t* out, std::int64_t const* const* peers,
                             int world, std::size_t elements) {
        queue->enqueue([=] {
            for (std::size_t i = 0; i < elements; ++i) {
                std::int64_t least = peers[0][i];
                for (int rank = 1; rank < world; ++rank) {
                    least = detail::smaller(least, peers[rank][i]);
                }
                out[i] = least;
            }
        });
    }

    /// @brief Adds the slices to an inspection. The table stays valid until the command ran.
    template <class A, class Inspection>
    static void inspect(Queue queue, std::span<InspectSlice<A> const> slices, Inspection* result) {
        queue->enqueue([=] {
            for (auto const& slice : slices) {
                host::inspect(slice.values, slice.elements, slice.first_index, *result);
            }
        });
    }

    /// @brief Adds each slice to its norm. The table stays valid until the command ran.
    template <class A>
    static void add_to_norms(Queue queue, std::span<NormSlice<A> const> slices, NormKind kind,
                             ops::NormSum* norms) {
        queue->enqueue([=] {
            for (auto const& [part, norm] : slices) {
                host::add_to_norm(kind, part.values, part.elements, part.first_index, norms[norm]);
            }
        });
    }

    /// @brief One optimizer step over the slices, unless it is skipped. The tables stay valid until
    /// the command ran.
    template <class Optimizer, class Slice, class Group>
    static void update(Queue queue, std::span<Slice const> slices, Group const* groups,
                       UpdateDecision const* decision) {
        queue->enqueue([=] {
            if (decision->skip) {
                return;
            }
            for (auto const& slice : slices) {
                if constexpr (Optimizer::whole_tensor) {
                    Optimizer::update_tensor(host::Tensor(slice, decision->factor),
                                             groups[slice.group].hyper);
                } else {
                    host::update<Optimizer>(slice.gradient, decided(slice.weights(), *decision),
                                            slice.all_states(), slice.elements, decision->factor,
                                            groups[slice.group].hyper);
                }
            }
        });
    }

    /// @brief Copies a bucket to the tensors that it is made of, and converts where the types
    /// differ. The table stays valid until the command ran.
    template <class T, class InBucket>
    static void copy_from_bucket(Queue queue, std::span<CopySlice<T> const> slices,
                                 InBucket const* bucket) {
        queue->enqueue([=] {
            std::size_t const moved = moved_bytes<T, InBucket>(slices);
            for (auto const& slice : slices) {
                host::detail::convert(slice.tensor, bucket + slice.bucket_begin, slice.elements,
                                      1.0F, moved);
            }
        });
    }

    /// @brief The way back: tensors, or parts of them, to where they stand in a bucket.
    template <class T, class InBucket>
    static void copy_to_bucket(Queue queue, std::span<CopySlice<T> const> slices,
                               InBucket* bucket) {
        queue->enqueue([=] {
            std::size_t const moved = moved_bytes<T, InBucket>(slices);
            for (auto const& slice : slices) {
                host::detail::convert(bucket + slice.bucket_begin, slice.tensor, slice.elements,
                                      1.0F, moved);
            }
        });
    }

private:
    template <class T, class InBucket>
    static std::size_t moved_bytes(std::span<CopySlice<T> const> slices) noexcept {
        std::size_t elements = 0;
        for (auto const& slice : slices) {
            elements += slice.elements;
        }
        return elements * (sizeof(T) + sizeof(InBucket));
    }
};
static_assert(Backend<HostBackend>);

} // namespace ZERO_NAMESPACE
