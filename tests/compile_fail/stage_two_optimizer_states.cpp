// expect: zero::ZeroStage: two policies for the type of the optimizer's states are given; give one.
#include "stage.hpp"

using Stage = zero::ZeroStage<2, zero::OptimizerState<float>, zero::OptimizerState<zero::bfloat16>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
