#pragma once

#include "../core/detail/namespace.hpp"
#include "detail/run_group.hpp"
#include "loopback.hpp"

#include <utility>

namespace ZERO_NAMESPACE {

/// @brief Runs `body(communicator)` as `world` ranks, each on a thread of its own (rank 0 on the
/// calling one), and joins them all.
///
/// The first exception of a rank aborts the group, so that the others get `Aborted` with its
/// message instead of waiting; it is rethrown here.
/// @param body called by all ranks at the same time; what it captures by reference is shared
/// between them
/// @throws InvalidArgument when world is not positive; whatever `body` throws
template <class Communicator = LoopbackCommunicator, class Body>
void run_ranks(int world, LoopbackOptions const& options, Body&& body) {
    detail::run_group<Communicator>(world, options,
                                    [&](Communicator& communicator) { body(communicator); });
}

template <class Communicator = LoopbackCommunicator, class Body>
void run_ranks(int world, Body&& body) {
    run_ranks<Communicator>(world, LoopbackOptions{}, std::forward<Body>(body));
}

} // namespace ZERO_NAMESPACE
