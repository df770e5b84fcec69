#include "report.hpp"

#include <zero/comm/detail/run_threads.hpp>
#include <zero/comm/run_ranks.hpp>
#include <zero/host/inline_queue.hpp>

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

namespace zero::test::run_ranks_test {

using test::message_of;

namespace {

void meet(LoopbackCommunicator& communicator) {
    host::InlineQueue queue;
    std::int64_t value = 1;
    communicator.all_reduce_integers(&value, 1, IntegerReduction::sum, &queue);
}

} // namespace

TEST_CASE("Each rank runs once on its own thread, rank 0 on the calling one") {
    std::mutex mutex;
    std::set<int> ranks;
    std::set<std::thread::id> threads;
    std::thread::id of_rank_0;
    run_ranks(5, [&](LoopbackCommunicator& communicator) {
        meet(communicator);
        std::lock_guard const lock(mutex);
        ranks.insert(communicator.rank());
        threads.insert(std::this_thread::get_id());
        of_rank_0 = communicator.rank() == 0 ? std::this_thread::get_id() : of_rank_0;
    });
    CHECK(ranks == std::set<int>{0, 1, 2, 3, 4});
    CHECK(threads.size() == 5);
    CHECK(of_rank_0 == std::this_thread::get_id());
}

TEST_CASE("The cause is rethrown with its type, not the Aborted of the others") {
    for (int failing = 0; failing < 4; ++failing) {
        CHECK_THROWS_AS(run_ranks(4,
                                  [&](LoopbackCommunicator& communicator) {
                                      meet(communicator);
                                      if (communicator.rank() == failing) {
                                          throw std::domain_error("the cause");
                                      }
                                      meet(communicator);
                                  }),
                        std::domain_error);
    }
}

#if defined(__GLIBC__)
TEST_CASE("If a rank cannot be started, the caller gets the system's error") {
    // No address space is left for a stack of 2^47 bytes.
    pthread_attr_t usual;
    REQUIRE(pthread_getattr_default_np(&usual) == 0);
    pthread_attr_t huge;
    REQUIRE(pthread_attr_init(&huge) == 0);
    REQUIRE(pthread_attr_setstacksize(&huge, std::size_t{1} << 47U) == 0);
    REQUIRE(pthread_setattr_default_np(&huge) == 0);
    bool is_refused = false;
    try {
        run_ranks(2, [](LoopbackCommunicator& communicator) { meet(communicator); });
    } catch (std::system_error const&) {
        is_refused = true;
    } catch (std::exception const&) { // checked below, with the usual stacks
    }
    REQUIRE(pthread_setattr_default_np(&usual) == 0);
    CHECK(is_refused);
}
#endif

TEST_CASE("A cause also counts when it is stored after its consequences") {
    std::atomic<int> released{0};
    CHECK_THROWS_AS(
        run_ranks(3,
                  [&](LoopbackCommunicator& communicator) {
                      if (communicator.rank() == 1) {
                          communicator.abort(
                              "as an engine does that is destroyed while an exception passes");
                          while (released < 2) {
                              std::this_thread::yield();
                          }
                          throw std::domain_error("the cause");
                      }
                      try {
                          meet(communicator);
                      } catch (Aborted const&) {
                          ++released;
                          throw;
                      }
                  }),
        std::domain_error);
}

TEST_CASE("An exception that is not a std::exception is rethrown as well") {
    std::string text;
    std::mutex mutex;
    CHECK_THROWS_AS(run_ranks(2,
                              [&](LoopbackCommunicator& communicator) {
                                  if (communicator.rank() == 1) {
                                      throw 42;
                                  }
                                  std::string const message =
                                      message_of<Aborted>([&] { meet(communicator); });
                                  std::lock_guard const lock(mutex);
                                  text = message;
                              }),
                    int);
    CHECK_THAT(text, test::contains_text("not a std::exception"));
}

TEST_CASE("An Aborted is rethrown if no rank threw anything else") {
    CHECK_THROWS_WITH(run_ranks(3,
                                [](LoopbackCommunicator& communicator) {
                                    if (communicator.rank() == 2) {
                                        communicator.abort("called off");
                                    }
                                    meet(communicator);
                                }),
                      test::contains_text("called off"));
}

TEST_CASE("A const body and a body that cannot be moved can be run") {
    std::atomic<int> calls{0};
    auto const body = [&calls](LoopbackCommunicator&) { ++calls; };
    run_ranks(3, body);
    run_ranks<LoopbackCommunicator>(2, LoopbackOptions{}, body);
    CHECK(calls == 5);
}

} // namespace zero::test::run_ranks_test
