#include "support/catch.hpp"

#include "oracle/codes.hpp"

// Both codes, for weights, gradients, errors and frozen parameters: these rows are optimised.

using namespace zero::test::oracle;

namespace {

using zero::ErrorFeedback;
using zero::Int4Blocks;
using zero::Int8Blocks;
using zero::LoopbackCommunicator;
using zero::NoFeedback;
using zero::Plain;
using zero::Wire;

} // namespace

TEST_CASE("Gradients in 4 bits, with errors in 8 bits, round-robin, with a dynamic loss scale: "
          "random configurations give the bits of the oracle in stages 1 to 3",
          "[oracle]") {
    run_row<10, LoopbackCommunicator, Wire<Plain, Int4Blocks, ErrorFeedback<Int8Blocks>>>(
        100, in_codes<Code::int4, Errors::eight_bits>);
}
TEST_CASE("Weights in 4 bits and gradients in 8, with a static loss scale: random configurations "
          "give the bits of the oracle in stages 1 to 3",
          "[oracle]") {
    run_row<6, LoopbackCommunicator, Wire<Int4Blocks, Int8Blocks>>(
        100, in_codes<Code::int8, Errors::none, Code::int4>);
}
TEST_CASE("Frozen parameters in 4 bits and weights and gradients in 8, round-robin, with a "
          "dynamic loss scale: random configurations give the bits of the oracle in stage 3",
          "[oracle]") {
    run_row<10, LoopbackCommunicator, Wire<Int8Blocks, Int8Blocks, NoFeedback, Int4Blocks>>(
        200, [](Configuration& c) {
            return frozen_in_codes<Code::int4>(c)
                   && in_codes<Code::int8, Errors::none, Code::int8>(c);
        });
}
