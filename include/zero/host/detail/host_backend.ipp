#pragma once

#include "../host_backend.hpp"

#include "../../core/detail/light_std.hpp"
#include "../../core/error.hpp"
#include "../inline_queue.hpp"
#include "../kernels.hpp"
#include "copy_loop.hpp"

namespace ZERO_NAMESPACE {

ZERO_INLINE HostBackend::Queue HostBackend::default_compute_queue() noexcept {
    static host::InlineQueue queue; // stateless, so ranks may share it
    return &queue;
}

ZERO_INLINE MemoryResource& HostBackend::default_memory() noexcept {
    static HostMemoryResource memory;
    return memory;
}

ZERO_INLINE void HostBackend::require_queue(Queue queue) {
    if (queue == nullptr) {
        throw InvalidArgument("zero: a queue is a null pointer; give the address of a host "
                              "queue, or leave it out for the default.");
    }
}

ZERO_COLD_INLINE void HostBackend::require_arithmetic(bool is_kept_in_unit) {
    if (!is_kept_in_unit || !host::detail::keeps_arithmetic()) {
        throw InvalidArgument(
            "zero: this code was compiled with -funsafe-math-optimizations, or with a part of it "
            "(-fassociative-math, -freciprocal-math, -fno-signed-zeros): these flags change "
            "results; compile without them.");
    }
}

ZERO_INLINE void HostBackend::copy_bytes(Queue queue, void* out, void const* in,
                                         std::size_t bytes) {
    if (bytes != 0 && out != in) {
        queue->enqueue([=] { host::detail::copy(out, in, bytes, 2 * bytes); });
    }
}

template <StorageType To, StorageType From>
void HostBackend::convert(Queue queue, To* out, From const* in, std::size_t elements,
                          float factor) {
    if (elements != 0) {
        queue->enqueue([=] { host::convert(out, in, elements, factor); });
    }
}

template <StorageType To, StorageType From>
void HostBackend::accumulate(Queue queue, To* sum, From const* in, std::size_t elements) {
    if (elements != 0) {
        queue->enqueue([=] { host::accumulate(sum, in, elements); });
    }
}

template <StorageType T>
void HostBackend::sum_ranks(Queue queue, T* out, T const* const* peers, int world,
                            std::size_t elements) {
    queue->enqueue([=] { host::sum_ranks(out, peers, world, elements); });
}

template <StorageType A, StorageType T>
void HostBackend::sum_ranks(Queue queue, A* sum, T const* const* peers, int world,
                            std::size_t elements, bool is_added) {
    queue->enqueue([=] { host::sum_ranks(sum, peers, world, elements, is_added); });
}

template <StorageType A, StorageType T>
void HostBackend::sum_tree(Queue queue, ops::TreeSum<A> const& sum, T const* const* peers,
                           int world, std::size_t elements) {
    queue->enqueue([=] { host::sum_tree(sum, peers, world, elements); });
}

ZERO_INLINE void HostBackend::sum_integers(Queue queue, std::int64_t* out,
                                           std::int64_t const* const* peers, int world,
                                           std::size_t elements) {
    reduce_integers(queue, out, peers, world, elements, 0);
}

ZERO_INLINE void HostBackend::min_integers(Queue queue, std::int64_t* out,
                                           std::int64_t const* const* peers, int world,
                                           std::size_t elements) {
    reduce_integers(queue, out, peers, world, 0, elements);
}

ZERO_INLINE void HostBackend::reduce_integers(Queue queue, std::int64_t* out,
                                              std::int64_t const* const* peers, int world,
                                              std::size_t sums, std::size_t minima) {
    queue->enqueue([=] {
        for (std::size_t i = 0; i < sums + minima; ++i) {
            std::int64_t result = peers[0][i];
            for (int rank = 1; rank < world; ++rank) {
                std::int64_t const other = peers[rank][i];
                result = i < sums ? result + other : detail::smaller(result, other);
            }
            out[i] = result;
        }
    });
}

template <StorageType A>
void HostBackend::inspect(Queue queue, std::span<InspectSlice<A> const> slices,
                          ops::Inspection* result) {
    queue->enqueue([=] {
        for (auto const& slice : slices) {
            host::inspect(slice.values, slice.elements, slice.first_index, *result);
        }
    });
}

template <StorageType A>
void HostBackend::add_to_norms(Queue queue, std::span<NormSlice<A> const> slices, NormKind kind,
                               ops::NormSum* norms) {
    queue->enqueue([=] {
        for (auto const& [part, norm] : slices) {
            host::add_to_norm(kind, part.values, part.elements, part.first_index, norms[norm]);
        }
    });
}

template <StorageType A>
void HostBackend::count_zeros(Queue queue, std::span<InspectSlice<A> const> slices,
                              std::int64_t* count) {
    queue->enqueue([=] {
        for (auto const& slice : slices) {
            host::count_zeros(slice.values, slice.elements, *count);
        }
    });
}

namespace host::detail {

/// Bytes that the copies of one operation read and write.
template <class T, class InBucket>
std::size_t moved_bytes(std::span<CopySlice<T> const> slices) noexcept {
    std::size_t elements = 0;
    for (auto const& slice : slices) {
        elements += slice.elements;
    }
    return elements * (sizeof(T) + sizeof(InBucket));
}

} // namespace host::detail

template <StorageType T, StorageType InBucket>
void HostBackend::copy_from_bucket(Queue queue, std::span<CopySlice<T> const> slices,
                                   InBucket const* bucket) {
    queue->enqueue([=] {
        std::size_t const moved = host::detail::moved_bytes<T, InBucket>(slices);
        for (auto const& slice : slices) {
            host::detail::convert(slice.tensor, bucket + slice.bucket_begin, slice.elements, 1.0F,
                                  moved);
        }
    });
}

template <StorageType T, StorageType InBucket>
void HostBackend::copy_to_bucket(Queue queue, std::span<CopySlice<T> const> slices,
                                 InBucket* bucket) {
    queue->enqueue([=] {
        std::size_t const moved = host::detail::moved_bytes<T, InBucket>(slices);
        for (auto const& slice : slices) {
            host::detail::convert(bucket + slice.bucket_begin, slice.tensor, slice.elements, 1.0F,
                                  moved);
        }
    });
}

} // namespace ZERO_NAMESPACE
