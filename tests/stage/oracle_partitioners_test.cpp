#include "support/catch.hpp"

#include "oracle/driver.hpp"

using namespace zero::test::oracle;

TEST_CASE("Balanced whole parameters in searched buckets: random configurations give the bits of "
          "the oracle in every stage",
          "[oracle]") {
    run_row<16>();
}
TEST_CASE(
    "A whole group cut at once: random configurations give the bits of the oracle in every stage",
    "[oracle]") {
    run_row<17>();
}
TEST_CASE(
    "A whole group dealt and cut: random configurations give the bits of the oracle in every stage",
    "[oracle]") {
    run_row<18>();
}
TEST_CASE(
    "Each parameter split evenly: random configurations give the bits of the oracle in every stage",
    "[oracle]") {
    run_row<19>();
}
