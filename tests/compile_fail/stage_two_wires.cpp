// expect: zero::ZeroStage: two Wire policies are given; give one.
#include "stage.hpp"

#include <zero/stage/wire.hpp>

using Stage = zero::ZeroStage<3, zero::Wire<zero::Int8Blocks>, zero::Wire<>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
