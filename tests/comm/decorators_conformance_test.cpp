#include "conformance.hpp"

#include <zero/comm/any_communicator.hpp>
#include <zero/comm/checked.hpp>
#include <zero/comm/detail/run_threads.hpp>
#include <zero/comm/recording.hpp>
#include <zero/comm/run_ranks.hpp>
#include <zero/comm/timed.hpp>

#include <chrono>

namespace zero::test::decorators_conformance_test {

namespace {

template <template <class> class Decorator>
struct DecoratorFixture {
    template <class Body>
    static void run(int world, Body const& body) {
        run_ranks(world, {.time_out = std::chrono::seconds(60)}, [&](LoopbackCommunicator& inner) {
            Decorator<LoopbackCommunicator> communicator(inner);
            body(communicator);
        });
    }
};

struct TimedFixture {
    template <class Body>
    static void run(int world, Body const& body) {
        run_ranks(world, {.time_out = std::chrono::seconds(60)}, [&](LoopbackCommunicator& inner) {
            Timeline timeline(inner.rank(), 1000); // some cases reach its capacity
            Timed<LoopbackCommunicator> communicator(inner, &timeline);
            body(communicator);
        });
    }
};

/// Every second rank chooses another type.
struct AnyFixture {
    template <class Body>
    static void run(int world, Body const& body) {
        run_ranks(world, {.time_out = std::chrono::seconds(60)}, [&](LoopbackCommunicator& inner) {
            using Any = AnyCommunicator<LoopbackCommunicator, Recording<LoopbackCommunicator>>;
            Recording<LoopbackCommunicator> recording(inner);
            Any communicator = inner.rank() % 2 == 0 ? Any(&inner) : Any(&recording);
            body(communicator);
        });
    }
};

using RecordingFixture = DecoratorFixture<Recording>;
using CheckedFixture = DecoratorFixture<Checked>;

} // namespace

TEMPLATE_TEST_CASE("A decorated loopback sums in rank order and rounds once", "", RecordingFixture,
                   CheckedFixture, TimedFixture, AnyFixture) {
    check_sums_of<TestType, float>();
    check_sums_of<TestType, bfloat16>();
}

TEMPLATE_TEST_CASE("A decorated loopback gathers and broadcasts", "", RecordingFixture,
                   CheckedFixture, TimedFixture, AnyFixture) {
    check_gathers_of<TestType, float, float16, std::int64_t, unsigned char>();
    check_broadcasts_of<TestType, bfloat16, std::int64_t>();
}

TEMPLATE_TEST_CASE("A decorated loopback exchanges", "", RecordingFixture, CheckedFixture,
                   TimedFixture, AnyFixture) {
    check_exchanges_of<TestType, float, bfloat16, std::int64_t, unsigned char>();
}

TEMPLATE_TEST_CASE("A decorated loopback reduces integers exactly", "", RecordingFixture,
                   CheckedFixture, TimedFixture, AnyFixture) {
    check_integer_reductions<TestType>();
}

TEMPLATE_TEST_CASE("A decorated loopback sums single numbers", "", RecordingFixture, CheckedFixture,
                   TimedFixture, AnyFixture) {
    check_number_sums<TestType>();
}

TEMPLATE_TEST_CASE("A decorated loopback releases all ranks when one rank aborts", "",
                   RecordingFixture, CheckedFixture, TimedFixture, AnyFixture) {
    check_abort<TestType>();
}

} // namespace zero::test::decorators_conformance_test
