#include "support/catch.hpp"

#include "oracle/driver.hpp"

using namespace zero::test::oracle;

TEST_CASE("Random configurations of float parameters with AdamW give the bits of the oracle in every stage", "[oracle]") { run_row<0>(); }
TEST_CASE("Random configurations of float parameters dealt in turn with SGD give the bits of the oracle in every stage", "[oracle]") { run_row<1>(); }
TEST_CASE("Random configurations of float parameters in one bucket give the bits of the oracle in every stage", "[oracle]") { run_row<2>(); }
