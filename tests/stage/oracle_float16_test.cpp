#include "support/catch.hpp"

#include "oracle/driver.hpp"

using namespace zero::test::oracle;

TEST_CASE("Float16 parameters, dynamic scale: random configurations give the bits of the oracle in "
          "every stage",
          "[oracle]") {
    run_row<9>();
}
TEST_CASE("Float16 parameters, round-robin partitioner: random configurations give the bits of the "
          "oracle in every stage",
          "[oracle]") {
    run_row<10>();
}
TEST_CASE("Float16 parameters with float gradients in one bucket: random configurations give the "
          "bits of the oracle in every stage",
          "[oracle]") {
    run_row<11>();
}
