#include "support/catch.hpp"

#include "host/kernel_inputs.hpp"
#include "oracle/driver.hpp"

using namespace zero::test::oracle;

TEST_CASE("Float parameters, gradients sent as float16, a functor that adds products: random "
          "configurations give the bits of the oracle in every stage, with every instruction set",
          "[oracle]") {
    for (auto const set : zero::test::instruction_sets) {
        zero::test::WithInstructionSet const scope(set);
        run_row<12>();
    }
}
TEST_CASE("Bfloat16 wire and accumulation of float gradients: random configurations give the bits "
          "of the oracle in every stage",
          "[oracle]") {
    run_row<13>();
}
TEST_CASE("Float parameters with bfloat16 gradients, dynamic scale: random configurations give the "
          "bits of the oracle in every stage",
          "[oracle]") {
    run_row<14>();
}
TEST_CASE("Float16 accumulation of bfloat16 gradients: random configurations give the bits of the "
          "oracle in every stage",
          "[oracle]") {
    run_row<15>();
}
