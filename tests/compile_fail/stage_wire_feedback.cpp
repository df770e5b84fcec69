// expect: zero: Wire keeps the errors of encoded gradients, and it encodes none; leave the third argument of zero::Wire out.
#include "stage.hpp"

#include <zero/stage/wire.hpp>

struct Memory {};

using Stage = zero::ZeroStage<3, zero::Wire<zero::Int8Blocks, zero::Plain, Memory>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
