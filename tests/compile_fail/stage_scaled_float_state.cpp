// expect: zero: BlockScaledState is for float16 and power8, whose range moments exceed; write zero::BlockScaledState<zero::float16> or zero::BlockScaledState<zero::power8>
// nvcc
#include "stage.hpp"

using Stage = zero::ZeroStage<2, zero::BlockScaledState<float>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
