// What fails while states leave memory or come back loses nothing, or says what is lost.

#include "parked_model.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <zero/stage/offload_states.hpp>
#include <zero/zero.hpp>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace zero::test::offload_states_faults_test {

namespace {

using namespace parked_model;

/// Checks that all is in memory and that no file is left.
void check_all_here(Alone& alone) {
    CHECK(alone.files.created == alone.files.closed);
    CHECK(resident(alone.memory.host) == alone.all_bytes);
    CHECK(alone.memory.host.resident_bytes(BufferKind::staging) == 0);
    CHECK(alone.memory.foreign == 0);
    for (BufferKind const kind : update_kinds) {
        CHECK(where(alone.engine, kind) == StatesPlace::memory);
    }
}

void check_message(Outcome const& outcome, std::vector<std::string> const& texts) {
    for (std::string const& text : texts) {
        CHECK_THAT(outcome.message, contains_text(text));
    }
}

} // namespace

TEST_CASE(
    "A full disk, a failed write and memory that the system keeps leave the engine as it was, "
    "at once or at the next call") {
    for (bool const blocking : {true, false}) {
        for (int const fault : {0, 1, 2, 3}) {
            INFO((blocking ? "blocking" : "not blocking") << ", fault " << fault);
            auto const outcome = with_one_rank([&](Alone& alone) {
                auto options = alone.options();
                options.blocking = blocking;
                std::vector<std::string> texts{"rank 0: offload_states()"};
                if (fault == 0) {
                    alone.files.room = 0;
                    texts.insert(texts.end(), {"has no room for a file of", "or offload less."});
                } else if (fault == 1) {
                    alone.files.on_write = [](std::size_t call) {
                        return std::int64_t{call == 9 ? -EIO : 0};
                    };
                    texts.insert(texts.end(), {", bytes ", "writing failed: Input/output error",
                                               "Nothing is lost: these states are in memory"});
                } else if (fault == 2) {
                    alone.memory.keeps = BufferKind::optimizer_state; // others are given back
                    texts.insert(texts.end(), {"the memory of optimizer state was not given back: "
                                               "it is locked (mlockall)",
                                               "Nothing is lost: these states are in memory"});
                } else {
                    alone.memory.staging = 0; // no staging memory
                    texts = {"bad_alloc"};
                }
                auto found = outcome_of([&] { offload_states(alone.engine, options); });
                if (!blocking && (fault == 1 || fault == 2)) {
                    CHECK(outcome_of([&] { alone.engine.begin_step(); }).type == "OutOfOrder");
                    found = outcome_of([&] { reload_states(alone.engine); });
                }
                check_message(found, texts);
                alone.memory.keeps = {};
                alone.memory.staging = no_limit;
                alone.files.room = no_limit;
                alone.files.on_write = nullptr;
                check_all_here(alone);
                offload_states(alone.engine, alone.options()); // once more
                CHECK(where(alone.engine, BufferKind::gradients) == StatesPlace::file);
                reload_states(alone.engine);
                check_all_here(alone);
            });
            CHECK(outcome.message.empty());
        }
    }
}

TEST_CASE("Memory that cannot be taken again leaves the states in the file until it can") {
    auto const outcome = with_one_rank([](Alone& alone) {
        offload_states(alone.engine, alone.options());
        std::size_t const within = resident(alone.memory.host);
        alone.memory.withholds = BufferKind::optimizer_state;
        CHECK_THROWS_AS(reload_states(alone.engine), std::bad_alloc);
        CHECK(resident(alone.memory.host) == within);
        CHECK(outcome_of([&] { alone.engine.begin_step(); }).type == "OutOfOrder");
        alone.memory.withholds = {};
        reload_states(alone.engine);
        check_all_here(alone);
    });
    CHECK(outcome.message.empty());
}

TEST_CASE("Memory that is kept, and memory that cannot be taken again, leave all in the file until "
          "it can") {
    auto const outcome = with_one_rank([](Alone& alone) {
        alone.memory.keeps = BufferKind::optimizer_state; // others are given back
        alone.memory.withholds = BufferKind::parameters;
        CHECK_THROWS_AS(offload_states(alone.engine, alone.options()), std::bad_alloc);
        alone.memory.keeps = {};
        CHECK(where(alone.engine, BufferKind::parameters) == StatesPlace::file);
        CHECK(outcome_of([&] { alone.engine.begin_step(); }).type == "OutOfOrder");
        offload_states(alone.engine, alone.options()); // all are there
        CHECK(alone.files.created == alone.files.closed + 1);
        CHECK_THROWS_AS(reload_states(alone.engine), std::bad_alloc);
        alone.memory.withholds = {};
        reload_states(alone.engine);
        check_all_here(alone);
    });
    CHECK(outcome.message.empty());
}

TEST_CASE("A block whose pages are kept after a failed reload is not written a second time") {
    auto const outcome = with_one_rank([](Alone& alone) {
        offload_states(alone.engine, alone.options());
        alone.memory.withholds = BufferKind::optimizer_state;
        alone.memory.keeps = BufferKind::parameters; // its pages are zero
        CHECK_THROWS_AS(reload_states(alone.engine), std::bad_alloc);
        alone.memory.withholds = {};
        alone.memory.keeps = {};
        offload_states(alone.engine, alone.options());
        reload_states(alone.engine);
        check_all_here(alone);
    });
    CHECK(outcome.message.empty());
}

TEST_CASE("A file that cannot be read, or is not what was written, breaks the engine, and peers "
          "get Aborted") {
    for (bool const is_damaged : {false, true}) {
        for (bool const blocking : {true, false}) {
            INFO(is_damaged << blocking);
            std::vector<Outcome> after;
            auto const outcomes = run_and_observe(2, [&](LoopbackCommunicator& communicator) {
                bool const fails = communicator.rank() == 1;
                Alone alone(communicator);
                offload_states(alone.engine, alone.options());
                if (fails && is_damaged) {
                    alone.files.bytes(0)[5000] ^= std::byte{1};
                } else if (fails) {
                    alone.files.on_read = [](std::size_t) { return std::int64_t{-EIO}; };
                }
                try {
                    reload_states(alone.engine, {.blocking = blocking});
                    (void)run_step(alone.engine, 0, 1).report();
                } catch (...) {
                    if (fails) {
                        after = {outcome_of([&] { alone.engine.begin_step(); }),
                                 outcome_of([&] { reload_states(alone.engine); }), outcome_of([&] {
                                     alone.engine.for_each_owned_slice([](auto const&) {});
                                 })};
                    }
                    throw;
                }
            });
            CHECK(outcomes.ranks[0].type == "Aborted");
            check_message(outcomes.ranks[1],
                          {"rank 1: reload_states(): ", ", bytes ", " of a buffer",
                           is_damaged ? "checksum" : "Input/output error",
                           "The states are lost; load the last checkpoint into a new engine."});
            REQUIRE(after.size() == 3);
            for (Outcome const& outcome : after) {
                CHECK(outcome.type == "BrokenEngine");
            }
            check_message(after[2], {"could not be reloaded and are lost (rank 1)"});
        }
    }
}

TEST_CASE("An engine ends while its states are away, leave, or come back") {
    for (int const moment : {0, 1, 2}) {
        INFO(moment);
        auto const outcomes = run_and_observe(1, [&](LoopbackCommunicator& communicator) {
            std::atomic<bool> is_open{false};
            auto const pass = [&](std::uint64_t) { is_open.wait(false); };
            std::optional<Alone> alone(std::in_place, communicator);
            auto options = alone->options();
            options.blocking = moment != 0;
            (moment == 0 ? alone->files.before_write_at : alone->files.before_read_at) = pass;
            offload_states(alone->engine, options);
            if (moment == 0) {
                CHECK(where(alone->engine, BufferKind::parameters) == StatesPlace::memory);
            }
            if (moment == 2) {
                reload_states(alone->engine, {.blocking = false});
                CHECK(where(alone->engine, BufferKind::parameters) == StatesPlace::file);
            }
            is_open = true;
            is_open.notify_all();
            alone.reset();
        });
        CHECK(outcomes.ranks[0].message.empty());
    }
}

} // namespace zero::test::offload_states_faults_test
