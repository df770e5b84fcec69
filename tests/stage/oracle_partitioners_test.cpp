#include "support/catch.hpp"

#include "oracle/driver.hpp"

using namespace zero::test::oracle;

TEST_CASE("Balanced partitioner: random configurations give the bits of the oracle in every stage",
          "[oracle]") {
    run_row<16>();
}
TEST_CASE(
    "Whole-group partitioner: random configurations give the bits of the oracle in every stage",
    "[oracle]") {
    run_row<17>();
}
TEST_CASE(
    "Dealt-group partitioner: random configurations give the bits of the oracle in every stage",
    "[oracle]") {
    run_row<18>();
}
TEST_CASE(
    "Per-tensor partitioner: random configurations give the bits of the oracle in every stage",
    "[oracle]") {
    run_row<19>();
}
