#pragma once

#include "../../core/detail/text.hpp"
#include "../../core/error.hpp"
#include "run_threads.hpp"

#include <exception>
#include <string_view>
#include <thread>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// Runs one rank and informs the group when it has thrown or finished: `release` aborts or leaves
/// the communicator of the rank (`run_group`), and `Rendezvous::end` then wakes the peers.
ZERO_COLD_INLINE void
run_rank_of_group(std::size_t rank, FunctionRef<std::size_t> const& body,
                  FunctionRef<std::size_t, std::string_view, bool> const& release,
                  Failures& failures) noexcept {
    auto const fail = [&](bool is_consequence) {
        failures.keep(is_consequence);
        report_failure(rank, [&](std::string_view cause) { release(rank, cause, true); });
    };
    try {
        body(rank);
        // a peer that enters a collective later would wait for this rank in vain
        release(rank, finished_text(rank), false);
    } catch (Aborted const&) {
        fail(true);
    } catch (...) {
        fail(false);
    }
}

ZERO_COLD_INLINE void run_threads(std::size_t world, FunctionRef<std::size_t> body,
                                  FunctionRef<std::size_t, std::string_view, bool> release) {
    Failures failures(world);
    std::vector<std::thread> threads;
    try {
        threads.reserve(world);
        for (std::size_t rank = 1; rank < world; ++rank) {
            threads.emplace_back([&, rank] { run_rank_of_group(rank, body, release, failures); });
        }
    } catch (...) { // the system cannot create another thread
        failures.keep(false);
        release(0, "a rank could not be started", true);
    }
    if (threads.size() + 1 == world) {
        run_rank_of_group(0, body, release, failures);
    }
    for (auto& thread : threads) {
        thread.join();
    }
    failures.rethrow_cause();
}

ZERO_COLD_INLINE Failures::Failures(std::size_t world) {
    _failures.reserve(world + 1);
}

ZERO_COLD_INLINE void Failures::keep(bool is_consequence) noexcept {
    std::lock_guard const lock(_mutex);
    _failures.push_back({std::current_exception(), is_consequence});
}

ZERO_COLD_INLINE void Failures::rethrow_cause() const {
    for (Failure const& failure : _failures) {
        if (!failure.is_consequence) {
            std::rethrow_exception(failure.exception);
        }
    }
    if (!_failures.empty()) {
        std::rethrow_exception(_failures.front().exception);
    }
}

ZERO_COLD_INLINE void report_failure(std::size_t rank,
                                     FunctionRef<std::string_view> abort) noexcept {
    try {
        try {
            throw;
        } catch (std::exception const& error) {
            abort(text({"rank ", rank, ": ", first_line(error.what())}));
        } catch (...) {
            abort(text({"rank ", rank, " threw an exception that is not a std::exception"}));
        }
    } catch (...) { // there was no memory for a text
        abort("a rank failed");
    }
}

ZERO_COLD_INLINE std::string finished_text(std::size_t rank) {
    return text(
        {"rank ", rank, " finished and left the group; every rank must make the same calls"});
}

} // namespace ZERO_NAMESPACE::detail
