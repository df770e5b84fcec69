// expect: zero::ZeroStage: zero::Wire encodes the weights that ranks gather, and stage 0 gathers none; use stage 1, 2 or 3, or leave zero::Wire out.
#include "stage.hpp"

#include <zero/stage/wire.hpp>

using Stage = zero::ZeroStage<0, zero::Wire<zero::Int8Blocks>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
