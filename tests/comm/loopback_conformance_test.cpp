#include "conformance.hpp"

#include <zero/comm/detail/run_threads.hpp>
#include <zero/comm/run_ranks.hpp>

#include <chrono>

namespace zero::test::loopback_conformance_test {

namespace {

struct LoopbackFixture {
    template <class Body>
    static void run(int world, Body const& body) {
        run_ranks(world, {.time_out = std::chrono::seconds(60)},
                  [&](LoopbackCommunicator& communicator) { body(communicator); });
    }
};

} // namespace

TEST_CASE("Loopback sums float in rank order") {
    check_sums_of<LoopbackFixture, float>();
}

TEST_CASE("Loopback sums bfloat16 in rank order and rounds once") {
    check_sums_of<LoopbackFixture, bfloat16>();
}

TEST_CASE("Loopback sums float16 in rank order and rounds once") {
    check_sums_of<LoopbackFixture, float16>();
}

TEST_CASE("Loopback gathers every type") {
    check_gathers_of<LoopbackFixture, float, bfloat16, float16, std::int64_t, std::uint64_t,
                     unsigned char>();
}

TEST_CASE("Loopback exchanges every type") {
    check_exchanges_of<LoopbackFixture, float, bfloat16, float16, std::int64_t, std::uint64_t,
                       unsigned char>();
}

TEST_CASE("Loopback broadcasts every type") {
    check_broadcasts_of<LoopbackFixture, float, bfloat16, float16, std::int64_t, unsigned char>();
}

TEST_CASE("Loopback reduces integers exactly") {
    check_integer_reductions<LoopbackFixture>();
}

TEST_CASE("Loopback sums single numbers, while another queue is busy") {
    check_number_sums<LoopbackFixture>();
}

TEST_CASE("Loopback releases all ranks when one rank aborts") {
    check_abort<LoopbackFixture>();
}

} // namespace zero::test::loopback_conformance_test
