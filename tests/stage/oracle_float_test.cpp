#include "support/catch.hpp"

#include "oracle/driver.hpp"
#include "support/without_pieces.hpp"

using namespace zero::test::oracle;

TEST_CASE(
    "Float parameters with AdamW: random configurations give the bits of the oracle in every stage",
    "[oracle]") {
    run_row<0>();
}
TEST_CASE("Float parameters, round-robin partitioner, SGD: random configurations give the bits of "
          "the oracle in every stage",
          "[oracle]") {
    run_row<1>();
}
TEST_CASE("Float parameters in one bucket, static scale: random configurations give the bits of "
          "the oracle in every stage",
          "[oracle]") {
    run_row<2>();
}
TEST_CASE("Float parameters whose gradients are copied before they are sent: random configurations "
          "give the bits of the oracle in every stage",
          "[oracle]") {
    run_row<0, zero::test::WithoutPieces<zero::LoopbackCommunicator>>(50);
}
