// expect: zero::ZeroStage: zero::Wire sends gradients in codes, so the communication type of zero::GradientReduction would never be used; leave that type or the second argument of zero::Wire out.
#include "stage.hpp"

#include <zero/stage/wire.hpp>

using Stage = zero::ZeroStage<2, zero::GradientReduction<void, zero::bfloat16>,
                              zero::Wire<zero::Plain, zero::Int8Blocks>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
