#pragma once

#include "../../core/storage_types.hpp"

/// @file
/// @brief The instantiations of `HostBackend`'s member templates that the compiled library
/// contains. `host_backend.hpp` declares them (with `extern`), `src/host.cpp` defines them.

/// Calls `OF(prefix, T)` for each storage type `T`.
#define ZERO_HOST_FOR_TYPES(OF, prefix)                                                            \
    OF(prefix, float)                                                                              \
    OF(prefix, bfloat16)                                                                           \
    OF(prefix, float16)

/// Calls `OF(prefix, T, U)` for each pair of storage types.
#define ZERO_HOST_FOR_PAIRS(OF, prefix)                                                            \
    OF(prefix, float, float)                                                                       \
    OF(prefix, float, bfloat16)                                                                    \
    OF(prefix, float, float16)                                                                     \
    OF(prefix, bfloat16, float)                                                                    \
    OF(prefix, bfloat16, bfloat16)                                                                 \
    OF(prefix, bfloat16, float16)                                                                  \
    OF(prefix, float16, float)                                                                     \
    OF(prefix, float16, bfloat16)                                                                  \
    OF(prefix, float16, float16)

/// The operations on elements of `T`.
#define ZERO_HOST_INSTANTIATE_BACKEND_OF(prefix, T)                                                \
    prefix template void HostBackend::sum_ranks(Queue, T*, T const* const*, int, std::size_t);     \
    prefix template void HostBackend::inspect(Queue, std::span<InspectSlice<T> const>,             \
                                              ops::Inspection*);                                   \
    prefix template void HostBackend::add_to_norms(Queue, std::span<NormSlice<T> const>, NormKind, \
                                                   ops::NormSum*);                                 \
    prefix template void HostBackend::count_zeros(Queue, std::span<InspectSlice<T> const>,         \
                                                  std::int64_t*);

/// The operations that convert between `T` and `U`.
#define ZERO_HOST_INSTANTIATE_BACKEND_OF_PAIR(prefix, T, U)                                        \
    prefix template void HostBackend::convert(Queue, T*, U const*, std::size_t, float);            \
    prefix template void HostBackend::accumulate(Queue, T*, U const*, std::size_t);                \
    prefix template void HostBackend::sum_ranks(Queue, T*, U const* const*, int, std::size_t,      \
                                                bool);                                             \
    prefix template void HostBackend::sum_tree(Queue, ops::TreeSum<T> const&, U const* const*,     \
                                               int, std::size_t);                                  \
    prefix template void HostBackend::copy_from_bucket(Queue, std::span<CopySlice<T> const>,       \
                                                       U const*);                                  \
    prefix template void HostBackend::copy_to_bucket(Queue, std::span<CopySlice<T> const>, U*);

#define ZERO_HOST_INSTANTIATE_BACKEND(prefix)                                                      \
    ZERO_HOST_FOR_TYPES(ZERO_HOST_INSTANTIATE_BACKEND_OF, prefix)                                  \
    ZERO_HOST_FOR_PAIRS(ZERO_HOST_INSTANTIATE_BACKEND_OF_PAIR, prefix)

/// @file
/// @brief The instantiations of the host kernels that the compiled library contains: all storage
/// types and all pairs of them. `kernels.hpp` declares them (with `extern`), `src/host.cpp`
/// defines them.

/// The kernels over elements of `T`.
#define ZERO_HOST_INSTANTIATE_KERNELS_OF(prefix, T)                                                \
    prefix template void sum_ranks(T*, T const* const*, int, std::size_t) noexcept;                \
    prefix template void inspect(T const*, std::size_t, std::int64_t, ops::Inspection&) noexcept;  \
    prefix template void add_to_norm(NormKind, T const*, std::size_t, std::int64_t,                \
                                     ops::NormSum&) noexcept;                                      \
    prefix template void count_zeros(T const*, std::size_t, std::int64_t&) noexcept;

/// The kernels that convert from `From` to `To`.
#define ZERO_HOST_INSTANTIATE_CONVERSIONS_OF(prefix, To, From)                                     \
    prefix template void convert(To*, From const*, std::size_t, float) noexcept;                   \
    prefix template void detail::convert(To*, From const*, std::size_t, float,                     \
                                         std::size_t) noexcept;                                    \
    prefix template void accumulate(To*, From const*, std::size_t) noexcept;                       \
    prefix template void sum_ranks(To*, From const* const*, int, std::size_t, bool) noexcept;      \
    prefix template void sum_tree(ops::TreeSum<To> const&, From const* const*, int,                \
                                  std::size_t) noexcept;

#define ZERO_HOST_INSTANTIATE_KERNELS(prefix)                                                      \
    ZERO_HOST_FOR_TYPES(ZERO_HOST_INSTANTIATE_KERNELS_OF, prefix)                                  \
    ZERO_HOST_FOR_PAIRS(ZERO_HOST_INSTANTIATE_CONVERSIONS_OF, prefix)
