#pragma once

#include "loopback.hpp"

#include <cstddef>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace zero {

/// @brief Runs `body(communicator)` as `world` ranks, each on a thread of its own, and joins them all.
///
/// The first exception of a rank aborts the group, so that the others get `Aborted` with its message instead of waiting; it is rethrown here.
/// @throws InvalidArgument when world is not positive; whatever `body` throws
template <class Communicator = LoopbackCommunicator, class Body>
void run_ranks(int world, LoopbackOptions const& options, Body&& body) {
    auto communicators = Communicator::make_group(world, options);
    std::mutex mutex;
    std::exception_ptr cause;
    auto const run = [&](std::size_t rank) {
        try {
            body(communicators[rank]);
            communicators[rank].abort("rank " + std::to_string(rank) + " finished and left the group"); // who meets later would wait for it in vain
        } catch (...) {
            std::exception_ptr const failure = std::current_exception();
            std::string message = "an exception that is no std::exception";
            try {
                throw;
            } catch (std::exception const& error) {
                message = error.what();
            } catch (...) {
            }
            communicators[rank].abort("rank " + std::to_string(rank) + ": " + message);
            std::lock_guard const lock(mutex);
            if (cause == nullptr) {
                cause = failure;
            } else {
                try { // a consequence that was quicker than its cause gives way to it
                    std::rethrow_exception(cause);
                } catch (Aborted const&) {
                    cause = failure;
                } catch (...) {
                }
            }
        }
    };
    std::vector<std::thread> threads;
    for (std::size_t rank = 1; rank < communicators.size(); ++rank) {
        threads.emplace_back(run, rank);
    }
    run(0);
    for (auto& thread : threads) {
        thread.join();
    }
    if (cause != nullptr) {
        std::rethrow_exception(cause);
    }
}

template <class Communicator = LoopbackCommunicator, class Body>
void run_ranks(int world, Body&& body) {
    run_ranks<Communicator>(world, LoopbackOptions{}, std::forward<Body>(body));
}

} // namespace zero
