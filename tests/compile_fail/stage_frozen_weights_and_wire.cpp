// expect: zero::ZeroStage: two Wire policies are given; give one. zero::FrozenWeights is one: with others, write its codec as the fourth argument of zero::Wire.
#include "stage.hpp"

#include <zero/stage/wire.hpp>

using Stage =
    zero::ZeroStage<3, zero::Wire<zero::Int8Blocks>, zero::FrozenWeights<zero::Int4Blocks>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
