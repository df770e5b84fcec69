#include "support/catch.hpp"

#include "oracle/driver.hpp"

using namespace zero::test::oracle;

TEST_CASE("Float gradients sent as bfloat16, dynamic scale: random configurations give the bits of "
          "the oracle in every stage",
          "[oracle]") {
    run_row<5>();
}
TEST_CASE("Bfloat16 accumulation, static scale: random configurations give the bits of the oracle "
          "in every stage",
          "[oracle]") {
    run_row<6>();
}
TEST_CASE("Bfloat16 parameters without master weights: random configurations give the bits of the "
          "oracle in every stage",
          "[oracle]") {
    run_row<7>();
}
