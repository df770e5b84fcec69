// expect: zero::ZeroStage: in stages 1 and 2 every rank reads encoded weights, so a parameter that is its own master would lose bits in each step; use 16-bit parameters with zero::MasterWeights<float>, or stage 3, whose shards stay exact.
#include "stage.hpp"

#include <zero/stage/wire.hpp>

using Stage = zero::ZeroStage<2, zero::Wire<zero::Int8Blocks>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
