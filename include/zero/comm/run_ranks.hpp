#pragma once

#include "../core/detail/namespace.hpp"
#include "detail/run_threads.hpp"
#include "grouped_communicator.hpp"
#include "loopback.hpp"
#include "loopback_options.hpp"

#include <cstddef>
#include <string_view>
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

/// @brief Runs `body(communicator)` as one rank of a group, on the calling thread. An exception of
/// the body aborts the group, so that the other ranks get `Aborted` with its first line instead of
/// waiting, and is then rethrown.
///
/// For programs that start their threads or processes themselves; `run_ranks` starts threads. If
/// every rank runs on a loopback through this function, ranks that wait for one whose body has
/// returned get `Aborted`. On other communicators they wait until that rank's is destroyed. A rank
/// may run several bodies one after the other, as many as its peers run.
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

/// @brief Runs `body(groups)` as `world` ranks, whose loopback communicator is divided into groups:
///
///     using Groups = zero::Groups<zero::LoopbackCommunicator, zero::Hybrid>;
///     zero::run_ranks<Groups>(4, {.shard = 2}, [](Groups& groups) { ... });
///
/// @throws InvalidArgument if `world` is not positive; whatever `Groups` and `body` throw
template <detail::HasPart G, class Body>
void run_ranks(int world, LoopbackOptions const& loopback, typename G::Options const& options,
               Body&& body) {
    run_ranks<typename G::Part>(world, loopback, [&](typename G::Part& everyone) {
        G groups(everyone, options);
        run_rank(groups, [&](G& all) { body(all); }); // reports an exception before the parts leave
    });
}

/// @brief The same with the default options of the loopback.
template <detail::HasPart G, class Body>
void run_ranks(int world, typename G::Options const& options, Body&& body) {
    run_ranks<G>(world, LoopbackOptions{}, options, std::forward<Body>(body));
}

} // namespace ZERO_NAMESPACE
