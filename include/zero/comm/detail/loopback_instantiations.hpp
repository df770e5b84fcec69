#pragma once

#include "../../core/storage_types.hpp"

/// @file
/// @brief The instantiations of the loopback transport that the compiled library contains.
/// `loopback.hpp` declares them (with `extern`), `instantiations.ipp` defines them.

/// The sum of extents of `T`.
#define ZERO_COMM_INSTANTIATE_LOOPBACK_OF(prefix, T)                                               \
    prefix template void detail::LoopbackFrame<HostBackend>::sum_extent<T>(                        \
        LoopbackFrame&, void*, std::span<std::size_t const>, Queue, ops::HeldSums const&);

/// The accumulation of sums of `T` in elements of `A`.
#define ZERO_COMM_INSTANTIATE_LOOPBACK_OF_PAIR(prefix, T, A)                                       \
    prefix template void detail::LoopbackFrame<HostBackend>::accumulate_extent<T, A, false>(       \
        LoopbackFrame&, void*, std::span<std::size_t const>, Queue, ops::HeldSums const&);         \
    prefix template void detail::LoopbackFrame<HostBackend>::accumulate_extent<T, A, true>(        \
        LoopbackFrame&, void*, std::span<std::size_t const>, Queue, ops::HeldSums const&);

#define ZERO_COMM_INSTANTIATE_LOOPBACK(prefix)                                                     \
    prefix template class detail::LoopbackFrame<HostBackend>;                                      \
    prefix template class Loopback<HostBackend>;                                                   \
    prefix template void detail::wait_for_collectives(Loopback<HostBackend>&, host::Queue*);       \
    ZERO_COMM_INSTANTIATE_LOOPBACK_OF(prefix, float)                                               \
    ZERO_COMM_INSTANTIATE_LOOPBACK_OF(prefix, bfloat16)                                            \
    ZERO_COMM_INSTANTIATE_LOOPBACK_OF(prefix, float16)                                             \
    ZERO_COMM_INSTANTIATE_LOOPBACK_OF_PAIR(prefix, float, float)                                   \
    ZERO_COMM_INSTANTIATE_LOOPBACK_OF_PAIR(prefix, float, bfloat16)                                \
    ZERO_COMM_INSTANTIATE_LOOPBACK_OF_PAIR(prefix, float, float16)                                 \
    ZERO_COMM_INSTANTIATE_LOOPBACK_OF_PAIR(prefix, bfloat16, float)                                \
    ZERO_COMM_INSTANTIATE_LOOPBACK_OF_PAIR(prefix, bfloat16, bfloat16)                             \
    ZERO_COMM_INSTANTIATE_LOOPBACK_OF_PAIR(prefix, bfloat16, float16)                              \
    ZERO_COMM_INSTANTIATE_LOOPBACK_OF_PAIR(prefix, float16, float)                                 \
    ZERO_COMM_INSTANTIATE_LOOPBACK_OF_PAIR(prefix, float16, bfloat16)                              \
    ZERO_COMM_INSTANTIATE_LOOPBACK_OF_PAIR(prefix, float16, float16)
