#pragma once

#include "../core/detail/namespace.hpp"
#include "detail/report_failure.hpp"

#include <cstddef>
#include <string_view>
#include <utility>

namespace ZERO_NAMESPACE {

/// @brief Runs `body(communicator)` as one rank of a group, on the calling thread. An exception of
/// the body aborts the group, so that the other ranks get `Aborted` with its first line instead of
/// waiting, and is then rethrown.
///
/// For programs that start their threads or processes themselves; `run_ranks` starts threads. If
/// every rank runs on a loopback through this function, ranks that wait for one whose body has
/// returned get `Aborted`. On other communicators they wait until that rank's is destroyed. A rank
/// may run several bodies, one after the other, as many as its peers.
/// @return what the body returns
/// @throws any exception that `body` throws
template <class Communicator, class Body>
decltype(auto) run_rank(Communicator& communicator, Body&& body) {
    detail::RankBody const running(communicator);
    try {
        return std::forward<Body>(body)(communicator);
    } catch (...) {
        detail::report_failure(static_cast<std::size_t>(communicator.rank()),
                               [&](std::string_view cause) { communicator.abort(cause, false); });
        throw;
    }
}

} // namespace ZERO_NAMESPACE
