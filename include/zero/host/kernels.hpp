#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/storage_types.hpp"
#include "../ops/exact_sum.hpp"
#include "../ops/norm.hpp"
#include "../ops/tree_sum.hpp"

#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE::host::detail {

/// @brief `host::convert` as one of several conversions of an operation. Used by `HostBackend` for
/// copies between tensors and buckets.
/// @param moved_bytes bytes that all conversions of the operation read and write; decides whether
/// the results bypass the caches
template <StorageType To, StorageType From>
void convert(To* out, From const* in, std::size_t n, float factor,
             std::size_t moved_bytes) noexcept;

} // namespace ZERO_NAMESPACE::host::detail

/// The element loops of the host backend, except the update of an optimizer (`update.hpp`). They
/// run on the calling thread, accept any number of elements and any alignment, and give the same
/// bits with every instruction set and compiler. Arithmetic is in float; a result is rounded once
/// to its storage type. A NaN result of arithmetic is always the quiet NaN 0x7fc00000. Subnormal
/// numbers are not flushed.
namespace ZERO_NAMESPACE::host {

/// @brief out[i] = To(float(in[i]) * factor). With a factor of 1 the values are only converted or
/// copied.
///
/// `out` may equal `in` if the types are the same; otherwise the ranges must not overlap.
template <StorageType To, StorageType From>
void convert(To* out, From const* in, std::size_t n, float factor) noexcept;

/// @brief sum[i] = To(float(sum[i]) + float(in[i])).
template <StorageType To, StorageType From>
void accumulate(To* sum, From const* in, std::size_t n) noexcept;

/// @brief out[i] = T(((x0 + x1) + x2) + ...), where xr = float(peers[r][i]): in rank order, rounded
/// to the storage type once, at the end. `out` may be one of the peers.
/// @param world at least 1; the sum over one rank is a copy
template <StorageType T>
void sum_ranks(T* out, T const* const* peers, int world, std::size_t n) noexcept;

/// @brief The sum over ranks and its accumulation in one pass: the bits of `sum_ranks` into a range
/// of type T, followed by `convert` to `sum` or, with `is_added`, by `accumulate`.
/// @param sum may be one of the peers if the types are the same
/// @param world at least 1
template <StorageType A, StorageType T>
void sum_ranks(A* sum, T const* const* peers, int world, std::size_t n, bool is_added) noexcept;

/// @brief sum.out[i] = A(h0 + (h1 + ... + x)), where x is the sum of the ranks' elements as a
/// subtree of micro-batches (ops/tree_sum.hpp), in float, and h0, h1, ... are the sums that are
/// held, from the oldest to the newest. Nothing is rounded before. A NaN that is a sum is the
/// canonical one.
/// @param sum `sum.out` may be the oldest held sum, or one of the peers, if the types are the same
/// @param world at least 1, and a multiple of `sum.held.rank_group`
template <StorageType A, StorageType T>
void sum_tree(ops::TreeSum<A> const& sum, T const* const* peers, int world, std::size_t n) noexcept;

/// @brief Adds the squares of the values to `result`, exactly, so a range may be cut anywhere.
/// @param first_index index of `values[0]` in the numbering of `result`, for `first_non_finite`
template <StorageType T>
void inspect(T const* values, std::size_t n, std::int64_t first_index,
             ops::Inspection& result) noexcept;

/// @brief Adds the values to the sum of a norm, exactly, so a range may be cut anywhere.
template <StorageType T>
void add_to_norm(NormKind kind, T const* values, std::size_t n, std::int64_t first_index,
                 ops::NormSum& result) noexcept;

/// @brief Adds the number of values that are 0 or -0 to `count`.
template <StorageType T>
void count_zeros(T const* values, std::size_t n, std::int64_t& count) noexcept;

} // namespace ZERO_NAMESPACE::host

#if defined(ZERO_COMPILED)
#include "detail/host_backend_instantiations.hpp"

namespace ZERO_NAMESPACE::host {
ZERO_HOST_INSTANTIATE_KERNELS(extern)
} // namespace ZERO_NAMESPACE::host
#else
#include "detail/kernels.ipp"
#endif
