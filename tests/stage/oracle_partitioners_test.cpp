#include "support/catch.hpp"

#include "oracle/driver.hpp"

#include <zero/layout/proportional_partitioner.hpp>
#include <zero/layout/whole_matrix_partitioner.hpp>

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
TEST_CASE(
    "Proportional partitioner: random configurations give the bits of the oracle in every stage",
    "[oracle]") {
    run_row<3, zero::LoopbackCommunicator, zero::ProportionalPartitioner>(
        100, [](Configuration& c) {
            for (std::size_t rank = 0; rank < c.world; ++rank) { // some may own nothing
                auto const share = keyed(c.seed, c.index, 81, rank) % 4;
                c.shares.push_back(static_cast<double>(rank == 0 ? 1 + share : share));
            }
            return c.memory != Memory::adopted; // that is for contiguous cuts
        });
}
TEST_CASE(
    "Whole-matrix partitioner: random configurations give the bits of the oracle in every stage",
    "[oracle]") {
    run_row<3, zero::LoopbackCommunicator, zero::WholeMatrixPartitioner>(
        100, [](Configuration& c) { return c.memory != Memory::adopted; });
}
