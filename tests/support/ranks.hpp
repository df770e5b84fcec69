#pragma once

// Each rank is a thread, and assertions of Catch2 are not thread-safe: a rank returns what it saw,
// and the main thread asserts.

#include "outcome.hpp"

#include <zero/comm/run_ranks.hpp>

#include <chrono>
#include <cstddef>
#include <type_traits>
#include <vector>

namespace zero::test {

inline constexpr LoopbackOptions test_time_out{.time_out = std::chrono::seconds(60)};

/// Runs `body(communicator)` on each rank and returns the results by rank.
template <class Result, class Communicator = LoopbackCommunicator, class Body>
std::vector<Result> on_ranks(int world, Body const& body) {
    static_assert(!std::is_same_v<Result, bool>, "ranks race for words of std::vector<bool>");
    std::vector<Result> results(static_cast<std::size_t>(world));
    run_ranks<Communicator>(world, test_time_out, [&](Communicator& communicator) {
        results[static_cast<std::size_t>(communicator.rank())] = body(communicator);
    });
    return results;
}

/// The same on groups, into which the ranks are divided as `options` say.
template <class Result, class Groups, class Body>
std::vector<Result> on_ranks(int world, typename Groups::Options const& options, Body const& body) {
    static_assert(!std::is_same_v<Result, bool>, "ranks race for words of std::vector<bool>");
    std::vector<Result> results(static_cast<std::size_t>(world));
    run_ranks<Groups>(world, test_time_out, options, [&](Groups& groups) {
        results[static_cast<std::size_t>(groups.rank())] = body(groups);
    });
    return results;
}

struct Outcomes {
    std::vector<Outcome> ranks;
    Outcome rethrown; ///< how `run_ranks` itself ended
};

/// Runs `body(communicator)` on each rank and returns how each one ended. Exceptions propagate out
/// of the body to `run_ranks`, as in a program that does not catch them.
template <class Communicator = LoopbackCommunicator, class Body>
Outcomes run_and_observe(int world, Body const& body) {
    Outcomes outcomes;
    outcomes.ranks.resize(static_cast<std::size_t>(world));
    outcomes.rethrown = outcome_of([&] {
        run_ranks<Communicator>(world, test_time_out, [&](Communicator& communicator) {
            try {
                body(communicator);
            } catch (...) {
                outcomes.ranks[static_cast<std::size_t>(communicator.rank())] =
                    outcome_of_current_exception();
                throw;
            }
        });
    });
    return outcomes;
}

} // namespace zero::test
