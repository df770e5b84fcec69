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
/// For programs that start their threads or processes themselves; `run_ranks` starts threads. A
/// rank that returns while others still call collectives leaves them waiting until its communicator
/// is destroyed.
/// @return what the body returns
/// @throws any exception that `body` throws
template <class Communicator, class Body>
decltype(auto) run_rank(Communicator& communicator, Body&& body) {
    try {
        return std::forward<Body>(body)(communicator);
    } catch (...) {
        detail::report_failure(static_cast<std::size_t>(communicator.rank()),
                               [&](std::string_view cause) { communicator.abort(cause, false); });
        throw;
    }
}

} // namespace ZERO_NAMESPACE
