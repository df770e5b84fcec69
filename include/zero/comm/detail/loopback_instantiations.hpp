#pragma once

#include "../../host/detail/host_backend_instantiations.hpp"

/// @file
/// @brief The instantiations of the loopback transport that the compiled library contains.
/// `loopback.hpp` declares them (with `extern`), `src/comm.cpp` defines them.

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
    ZERO_HOST_FOR_TYPES(ZERO_COMM_INSTANTIATE_LOOPBACK_OF, prefix)                                 \
    ZERO_HOST_FOR_PAIRS(ZERO_COMM_INSTANTIATE_LOOPBACK_OF_PAIR, prefix)
