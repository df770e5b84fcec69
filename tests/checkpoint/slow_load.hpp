#pragma once

#include "support/ranks.hpp"
#include "support/temporary_folder.hpp"

#include <zero/checkpoint/load_checkpoint.hpp>
#include <zero/checkpoint/save_checkpoint.hpp>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

namespace zero::test {

/// Saves and loads on three ranks, with a `file_time_out` of 500 ms, which loads of the others keep
/// on a busy machine as well. The load of rank 1 does not end before those of the others have.
/// Returns how the loads ended.
/// @param with_engine calls `use(engine)` with the engine of a rank, as
/// `with_engine(communicator, use)`
template <class Communicator, class WithEngine>
std::vector<Outcome> load_slowly(WithEngine const& with_engine) {
    TemporaryFolder const folder;
    std::mutex mutex;
    std::condition_variable has_ended;
    int ended = 0; // of the two ranks that wait for rank 1
    return on_ranks<Outcome, Communicator>(3, [&](Communicator& communicator) {
        int const rank = communicator.rank();
        auto const wait_for_the_others = [&](auto const&) {
            std::unique_lock lock(mutex);
            if (rank == 1) { // bounded, so that the test can fail
                has_ended.wait_for(lock, std::chrono::seconds(30), [&] { return ended == 2; });
            }
        };
        Outcome outcome;
        with_engine(communicator, [&](auto& engine) {
            save_checkpoint(engine, folder.path());
            outcome = outcome_of([&] {
                try {
                    load_checkpoint(engine, folder.path(),
                                    {.check_extras = wait_for_the_others,
                                     .file_time_out = std::chrono::milliseconds(500)});
                } catch (...) {
                    std::lock_guard const lock(mutex);
                    ended += rank == 1 ? 0 : 1;
                    has_ended.notify_all();
                    throw;
                }
            });
        });
        return outcome;
    });
}

} // namespace zero::test
