#include "support/catch.hpp"

#include "oracle/driver.hpp"

#include <zero/comm/groups.hpp>

// The oracle adds in two levels: inside a group, then between groups.

using namespace zero::test::oracle;

namespace {

using Hosts = zero::Groups<zero::LoopbackCommunicator, zero::Hybrid>;
using HostsInFloat = zero::Groups<zero::LoopbackCommunicator, zero::HybridInFloat>;

} // namespace

TEST_CASE("Float parameters in groups: random configurations give the bits of the oracle in "
          "stages 1 to 3",
          "[oracle]") {
    run_row<0, Hosts>();
}
TEST_CASE("Bfloat16 parameters in groups: random configurations give the bits of the oracle in "
          "stages 1 to 3",
          "[oracle]") {
    run_row<3, Hosts>();
}
TEST_CASE("Bfloat16 parameters in groups that send floats between them: random configurations "
          "give the bits of the oracle in stages 1 to 3",
          "[oracle]") {
    run_row<5, HostsInFloat>();
}
TEST_CASE("Float16 parameters in groups, round-robin, with a dynamic loss scale: random "
          "configurations give the bits of the oracle in stages 1 to 3",
          "[oracle]") {
    run_row<10, Hosts>();
}
TEST_CASE(
    "Bfloat16 and float parameters in groups, with a split master: random configurations give "
    "the bits of the oracle in stages 1 to 3",
    "[oracle]") {
    run_row<25, Hosts>();
}
