// expect: zero::ZeroStage: zero::Wire encodes the gradients that each rank adds for its share, and in stage 0 every rank gets all sums; use stage 1, 2 or 3, or leave the second argument of zero::Wire out.
#include "stage.hpp"

#include <zero/stage/wire.hpp>

using Stage = zero::ZeroStage<0, zero::Wire<zero::Plain, zero::Int8Blocks>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
