// expect: zero::ZeroStage: zero::FrozenWeights keeps the shards of frozen parameters in codes, and below stage 3 every rank reads all of them in place; use stage 3, or leave zero::FrozenWeights out.
#include "stage.hpp"

#include <zero/stage/wire.hpp>

using Stage = zero::ZeroStage<2, zero::FrozenWeights<zero::Int8Blocks>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
