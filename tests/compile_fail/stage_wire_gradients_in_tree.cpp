// expect: zero::ZeroStage: TreeReduction sends the gradient of each micro-batch as it is, so that no bit depends on the number of ranks, and zero::Wire rounds it; use zero::GradientReduction, or leave the second argument of zero::Wire out.
#include "stage.hpp"

#include <zero/stage/wire.hpp>

using Stage = zero::ZeroStage<2, zero::TreeReduction<>, zero::Wire<zero::Plain, zero::Int8Blocks>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
