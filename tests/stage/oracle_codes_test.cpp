#include "support/catch.hpp"

#include "oracle/driver.hpp"

#include <zero/stage/wire.hpp>

// The oracle encodes and decodes what each rank sends, and adds in rank order. A pass reads weights
// that were decoded; shards of stage 3 and master weights keep every bit. It takes the codecs
// of the library, which have tests of their own. Adopted blocks that are not aligned are refused.

using namespace zero::test::oracle;

namespace {

using zero::ErrorFeedback;
using zero::FrozenWeights;
using zero::Int4Blocks;
using zero::Int8Blocks;
using zero::LoopbackCommunicator;
using zero::NoFeedback;
using zero::Plain;
using zero::Wire;

template <Code code, Errors errors, Code weights = Code::plain>
bool in_codes(Configuration& c) {
    c.code = code;
    c.errors = errors;
    c.weights = weights;
    c.beta = 0.25F * static_cast<float>(keyed(c.seed, c.index, 79) % 4);
    c.reset_every = 1 + keyed(c.seed, c.index, 80) % 5;
    c.predivide.reset();
    return c.memory != Memory::adopted || c.has_aligned_block;
}

/// Freezes about half of the parameters, but not the first.
template <Code code>
bool frozen_in_codes(Configuration& c) {
    c.frozen = code;
    bool is_first = true;
    bool has_frozen = false;
    for (std::size_t index = 0; index < c.shapes.size(); ++index) {
        Shape& shape = c.shapes[index];
        bool const stays =
            is_first || shape.tiles > 1 || keyed(c.seed, c.index, 84, index) % 2 == 0;
        is_first = is_first && (!shape.trainable || shape.elements == 0);
        shape.trainable = shape.trainable && stays;
        has_frozen = has_frozen || (!shape.trainable && shape.elements != 0);
    }
    return has_frozen && c.memory == Memory::owned;
}

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
TEST_CASE("Gradients in 4 bits, with errors in 8 bits, round-robin, with a dynamic loss scale: "
          "random configurations give the bits of the oracle in stages 1 to 3",
          "[oracle]") {
    run_row<10, LoopbackCommunicator, Wire<Plain, Int4Blocks, ErrorFeedback<Int8Blocks>>>(
        100, in_codes<Code::int4, Errors::eight_bits>);
}
TEST_CASE("Weights in 8 bits, round-robin: random configurations give the bits of the oracle in "
          "stages 1 to 3",
          "[oracle]") {
    run_row<4, LoopbackCommunicator, Wire<Int8Blocks>>(
        100, in_codes<Code::plain, Errors::none, Code::int8>);
}
TEST_CASE("Weights in 4 bits and gradients in 8, with a static loss scale: random configurations "
          "give the bits of the oracle in stages 1 to 3",
          "[oracle]") {
    run_row<6, LoopbackCommunicator, Wire<Int4Blocks, Int8Blocks>>(
        100, in_codes<Code::int8, Errors::none, Code::int4>);
}
TEST_CASE("Frozen bfloat16 parameters in 8 bits: random configurations give the bits of the oracle "
          "in stage 3",
          "[oracle]") {
    run_row<3, LoopbackCommunicator, FrozenWeights<Int8Blocks>>(200, frozen_in_codes<Code::int8>);
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

TEST_CASE("The oracle finds frozen parameters in another code", "[oracle][mutants]") {
    run_row<3, LoopbackCommunicator, FrozenWeights<Int8Blocks>>(
        50, frozen_in_codes<Code::int8>, [](Configuration& c) { c.frozen = Code::plain; });
}
