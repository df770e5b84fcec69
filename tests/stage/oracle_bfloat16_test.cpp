#include "support/catch.hpp"

#include "oracle/driver.hpp"

using namespace zero::test::oracle;

TEST_CASE("Bfloat16 parameters with AdamW: random configurations give the bits of the oracle in "
          "every stage",
          "[oracle]") {
    run_row<3>();
}
TEST_CASE("Bfloat16 parameters with float gradients: random configurations give the bits of the "
          "oracle in every stage",
          "[oracle]") {
    run_row<4>();
}
TEST_CASE("Bfloat16 parameters in one bucket, sent as float: random configurations give the bits "
          "of the oracle in every stage",
          "[oracle]") {
    run_row<8>();
}
