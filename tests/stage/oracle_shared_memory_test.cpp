#include "support/catch.hpp"

#include "comm/shared_threads.hpp"
#include "oracle/driver.hpp"

// Buckets in memory that processes of one host read in place.

using namespace zero::test::oracle;

TEST_CASE("Buckets in shared memory: random configurations give the bits of the oracle in every "
          "stage",
          "[oracle]") {
    run_row<3, zero::test::SharedThreads>(50);
    CHECK(zero::test::SharedThreadsCollectives::in_memory > 0);
}
