// expect: zero: Wire keeps the errors of the gradients that a rank encodes for its group, and it encodes none; leave the third argument of zero::Wire out.
#include "stage.hpp"

#include <zero/stage/wire.hpp>

struct Memory {};

using Between = zero::Level<zero::Plain, zero::Int8Blocks>;
using Stage = zero::ZeroStage<3, zero::Wire<zero::Int8Blocks, Between, Memory>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
