#include "support/catch.hpp"

#include "oracle/driver.hpp"

#include <zero/comm/secondary.hpp>

// Weights are copied and never rounded, so the oracle knows nothing of secondary copies. Half of
// the configurations own no memory, and are left out in stage 3.

using namespace zero::test::oracle;

namespace {

using Hosts = zero::Groups<zero::LoopbackCommunicator, zero::Secondary>;
using InReplicas =
    zero::Groups<zero::Groups<zero::LoopbackCommunicator, zero::Hybrid>, zero::Secondary>;

constexpr std::size_t twice = 200;

} // namespace

TEST_CASE("Float parameters with secondary copies: random configurations give the bits of the "
          "oracle",
          "[oracle]") {
    run_row<0, Hosts>(twice);
}
TEST_CASE("Float parameters with secondary copies in each replica: random configurations give the "
          "bits of the oracle",
          "[oracle]") {
    run_row<0, InReplicas>(twice);
}
TEST_CASE("Bfloat16 parameters with secondary copies: random configurations give the bits of the "
          "oracle",
          "[oracle]") {
    run_row<3, Hosts>(twice);
}
TEST_CASE("Float16 parameters with secondary copies, round-robin, with a dynamic loss scale: "
          "random configurations give the bits of the oracle",
          "[oracle]") {
    run_row<10, Hosts>(twice);
}
TEST_CASE("Bfloat16 parameters with secondary copies and stochastic rounding: random "
          "configurations give the bits of the oracle",
          "[oracle]") {
    run_row<21, Hosts>(twice);
}
TEST_CASE("Bfloat16 parameters with secondary copies, a split master and a balanced partitioner: "
          "random configurations give the bits of the oracle",
          "[oracle]") {
    run_row<24, Hosts>(twice);
}
TEST_CASE("Bfloat16 and float parameters with secondary copies: random configurations give the "
          "bits of the oracle",
          "[oracle]") {
    run_row<25, Hosts>(twice);
}
