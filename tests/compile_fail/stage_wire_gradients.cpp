// expect: zero: Wire encodes weights, and gradients travel in the communication type of zero::GradientReduction; leave the second argument of zero::Wire out.
#include "stage.hpp"

#include <zero/stage/wire.hpp>

using Stage = zero::ZeroStage<3, zero::Wire<zero::Int8Blocks, zero::Int8Blocks>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
