#pragma once

// Ranks are threads, and assertions of Catch2 are not thread-safe: each rank returns what it saw,
// and the main thread asserts.

#include <zero/comm/detail/run_group.hpp>
#include <zero/comm/run_ranks.hpp>

#include <chrono>
#include <cstddef>
#include <exception>
#include <string>
#include <typeinfo>
#include <vector>

namespace zero::test {

inline constexpr LoopbackOptions test_time_out{.time_out = std::chrono::seconds(60)};

/// Runs `body(communicator)` on each rank and returns the results by rank. (Not for bool: the ranks
/// would write to one word.)
template <class Result, class Communicator = LoopbackCommunicator, class Body>
std::vector<Result> on_ranks(int world, Body const& body) {
    std::vector<Result> results(static_cast<std::size_t>(world));
    run_ranks<Communicator>(world, test_time_out, [&](Communicator& communicator) {
        results[static_cast<std::size_t>(communicator.rank())] = body(communicator);
    });
    return results;
}

/// How one rank ended.
struct Outcome {
    std::string type =
        "returned"; ///< "Aborted", "TimedOut", "CollectiveMismatch", ..., "other" or "returned"
    std::string message;

    friend bool operator==(Outcome const&, Outcome const&) = default;
};

inline Outcome outcome_of_current_exception() {
    try {
        throw;
    } catch (TimedOut const& error) {
        return {"TimedOut", error.what()};
    } catch (Aborted const& error) {
        return {"Aborted", error.what()};
    } catch (CollectiveMismatch const& error) {
        return {"CollectiveMismatch", error.what()};
    } catch (LayoutMismatch const& error) {
        return {"LayoutMismatch", error.what()};
    } catch (UnusedParameter const& error) {
        return {"UnusedParameter", error.what()};
    } catch (NonFiniteGradients const& error) {
        return {"NonFiniteGradients", error.what()};
    } catch (LossScaleExhausted const& error) {
        return {"LossScaleExhausted", error.what()};
    } catch (BrokenEngine const& error) {
        return {"BrokenEngine", error.what()};
    } catch (LateGradient const& error) {
        return {"LateGradient", error.what()};
    } catch (OutOfOrder const& error) {
        return {"OutOfOrder", error.what()};
    } catch (InvalidArgument const& error) {
        return {"InvalidArgument", error.what()};
    } catch (QueueFull const& error) {
        return {"QueueFull", error.what()};
    } catch (std::exception const& error) {
        return {"other", error.what()};
    }
}

/// What `call` throws, as data.
template <class Call>
Outcome outcome_of(Call const& call) {
    try {
        call();
    } catch (...) {
        return outcome_of_current_exception();
    }
    return {};
}

/// The outcomes of all ranks, and what `run_ranks` itself threw.
struct Outcomes {
    std::vector<Outcome> ranks;
    Outcome rethrown;
};

/// Runs `body(communicator)` on each rank, keeps how it ended and lets the exception go on, as in a
/// program that does not catch.
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
