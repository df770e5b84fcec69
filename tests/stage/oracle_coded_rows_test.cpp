#include "support/catch.hpp"

#include "oracle/codes.hpp"

// The other rows of codes, each with one kind of them.

using namespace zero::test::oracle;

namespace {

using zero::ErrorFeedback;
using zero::FrozenWeights;
using zero::Int4Blocks;
using zero::Int8Blocks;
using zero::LoopbackCommunicator;
using zero::Plain;
using zero::Wire;

} // namespace

TEST_CASE("Gradients in 8 bits: random configurations give the bits of the oracle in stages 1 to 3",
          "[oracle]") {
    run_row<0, LoopbackCommunicator, Wire<Plain, Int8Blocks>>(100,
                                                              in_codes<Code::int8, Errors::none>);
}
TEST_CASE("Gradients in 4 bits, balanced: random configurations give the bits of the oracle in "
          "stages 1 to 3",
          "[oracle]") {
    run_row<16, LoopbackCommunicator, Wire<Plain, Int4Blocks>>(100,
                                                               in_codes<Code::int4, Errors::none>);
}
TEST_CASE("Gradients in 4 bits, with errors of floats: random configurations give the bits of the "
          "oracle in stages 1 to 3",
          "[oracle]") {
    run_row<3, LoopbackCommunicator, Wire<Plain, Int4Blocks, ErrorFeedback<float>>>(
        100, in_codes<Code::int4, Errors::floats>);
}
TEST_CASE("Weights in 8 bits, round-robin: random configurations give the bits of the oracle in "
          "stages 1 to 3",
          "[oracle]") {
    run_row<4, LoopbackCommunicator, Wire<Int8Blocks>>(
        100, in_codes<Code::plain, Errors::none, Code::int8>);
}
TEST_CASE("Frozen bfloat16 parameters in 8 bits: random configurations give the bits of the oracle "
          "in stage 3",
          "[oracle]") {
    run_row<3, LoopbackCommunicator, FrozenWeights<Int8Blocks>>(200, frozen_in_codes<Code::int8>);
}

TEST_CASE("The oracle finds frozen parameters in another code", "[oracle][mutants]") {
    run_row<3, LoopbackCommunicator, FrozenWeights<Int8Blocks>>(
        50, frozen_in_codes<Code::int8>, [](Configuration& c) { c.frozen = Code::plain; });
}
