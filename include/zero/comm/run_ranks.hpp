#pragma once

#include "../core/detail/namespace.hpp"
#include "detail/run_group.hpp"
#include "loopback.hpp"
#include "loopback_options.hpp"

#include <utility>

namespace ZERO_NAMESPACE {

/// @brief Runs `body(communicator)` as `world` ranks, each on its own thread (rank 0 on the calling
/// one), and joins them all.
///
/// The first exception of a rank aborts the group: the other ranks get `Aborted` with its message
/// instead of waiting, and the exception is rethrown here.
/// @param body called by all ranks concurrently; what it captures by reference is shared by them
/// @throws InvalidArgument if `world` is not positive; any exception that `body` throws
template <class Communicator = LoopbackCommunicator, class Body>
void run_ranks(int world, LoopbackOptions const& options, Body&& body) {
    detail::run_group<Communicator>(world, options,
                                    [&](Communicator& communicator) { body(communicator); });
}

/// @brief Runs the ranks with the default options.
template <class Communicator = LoopbackCommunicator, class Body>
void run_ranks(int world, Body&& body) {
    run_ranks<Communicator>(world, LoopbackOptions{}, std::forward<Body>(body));
}

#if defined(ZERO_COMPILED)
extern template void detail::run_group(int, LoopbackOptions const&,
                                       FunctionRef<LoopbackCommunicator&>);
#endif

} // namespace ZERO_NAMESPACE
