#pragma once

#include "../../../backend/slices.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../ops/exact_sum.hpp"
#include "../../../ops/norm.hpp"
#include "../../backend.cuh"
#include "../../table_range.hpp"
#include "config.cuh"
#include "copy_kernels.cuh"
#include "element_kernels.cuh"
#include "inspect_kernels.cuh"
#include "launch.cuh"
#include "sum_kernels.cuh"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#pragma nv_diagnostic push
#pragma nv_diag_suppress 1407 // see config.cuh

/// @file
/// @brief The operations of `cuda::Backend` whose kernels depend on element types alone.
/// `zero::cuda_compiled` instantiates them once; otherwise each translation unit instantiates them.

namespace ZERO_NAMESPACE::cuda::detail::ZERO_CUDA_NAMESPACE {

/// @brief Returns the number of blocks that run at once if a thread has at most 64 registers.
template <class Slice>
ZERO_CUDA_HIDDEN std::size_t resident_blocks(TableRange<Slice> const& table) noexcept {
    return 4 * static_cast<std::size_t>(table.multiprocessors);
}

} // namespace ZERO_NAMESPACE::cuda::detail::ZERO_CUDA_NAMESPACE

namespace ZERO_NAMESPACE::cuda::ZERO_CUDA_NAMESPACE {

template <class To, class From>
void Backend::convert(Queue queue, To* out, From const* in, std::size_t elements, float factor) {
    std::size_t const blocks = detail::chunks_of(elements);
    if (factor != 1.0F) {
        detail::launch(queue, blocks, detail::block_threads, detail::convert_kernel<true, To, From>,
                       out, in, elements, factor);
    } else if constexpr (std::is_same_v<To, From>) {
        copy_bytes(queue, out, in, elements * sizeof(To));
    } else {
        detail::launch(queue, blocks, detail::block_threads,
                       detail::convert_kernel<false, To, From>, out, in, elements, factor);
    }
}

template <class To, class From>
void Backend::accumulate(Queue queue, To* sum, From const* in, std::size_t elements) {
    detail::launch(queue, detail::chunks_of(elements), detail::block_threads,
                   detail::accumulate_kernel<To, From>, sum, in, elements);
}

template <class T>
void Backend::sum_ranks(Queue queue, T* out, T const* const* peers, int world,
                        std::size_t elements) {
    if (world == 1) {
        copy_bytes(queue, out, peers[0], elements * sizeof(T));
        return;
    }
    std::size_t const blocks = detail::chunks_of(elements);
    if (world <= detail::few_peers) {
        detail::launch(queue, blocks, detail::block_threads,
                       detail::sum_ranks_kernel<T, detail::few_peers>, out,
                       detail::peers_of<T, detail::few_peers>(peers, world), elements);
    } else {
        detail::launch(queue, blocks, detail::block_threads,
                       detail::sum_ranks_kernel<T, detail::most_peers>, out,
                       detail::peers_of<T, detail::most_peers>(peers, world), elements);
    }
}

template <class Integer>
void Backend::combine_integers(Queue queue, Integer* out, Integer const* const* peers, int world,
                               std::size_t elements, std::size_t sums) {
    std::size_t const blocks =
        std::min<std::size_t>((elements + detail::block_threads - 1) / detail::block_threads, 64);
    if (world <= detail::few_peers) {
        detail::launch(queue, blocks, detail::block_threads,
                       detail::combine_integers_kernel<detail::few_peers>, out,
                       detail::peers_of<std::int64_t, detail::few_peers>(peers, world), elements,
                       sums);
    } else {
        detail::launch(queue, blocks, detail::block_threads,
                       detail::combine_integers_kernel<detail::most_peers>, out,
                       detail::peers_of<std::int64_t, detail::most_peers>(peers, world), elements,
                       sums);
    }
}

template <class A>
void Backend::inspect(Queue queue, TableRange<InspectSlice<A>> const& table,
                      ops::Inspection* result) {
    detail::launch(queue, std::min(table.count, detail::resident_blocks(table)),
                   detail::block_threads, detail::inspect_kernel<A>, table, result);
}

template <class A>
void Backend::add_to_norms(Queue queue, TableRange<NormSlice<A>> const& table, NormKind kind,
                           ops::NormSum* norms) {
    auto* const kernel = kind == NormKind::l1   ? &detail::norms_kernel<NormKind::l1, A>
                         : kind == NormKind::l2 ? &detail::norms_kernel<NormKind::l2, A>
                                                : &detail::norms_kernel<NormKind::infinity, A>;
    detail::launch(queue, std::min(table.count, detail::resident_blocks(table)),
                   detail::block_threads, kernel, table, norms);
}

template <class A>
void Backend::count_zeros(Queue queue, TableRange<InspectSlice<A>> const& table,
                          std::int64_t* count) {
    detail::launch(queue, std::min(table.count, detail::resident_blocks(table)),
                   detail::block_threads, detail::count_zeros_kernel<A>, table, count);
}

template <class T, class InBucket>
void Backend::copy_from_bucket(Queue queue, TableRange<CopySlice<T>> const& table,
                               InBucket const* bucket) {
    detail::copy_table<false>(queue, table, bucket);
}

template <class T, class InBucket>
void Backend::copy_to_bucket(Queue queue, TableRange<CopySlice<T>> const& table, InBucket* bucket) {
    detail::copy_table<true>(queue, table, bucket);
}

} // namespace ZERO_NAMESPACE::cuda::ZERO_CUDA_NAMESPACE

#pragma nv_diagnostic pop
