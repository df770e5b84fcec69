// expect: zero: states in 16 bits are rounded stochastically, or to nearest with the second argument zero::RoundToNearest, and float states are not rounded; write zero::OptimizerState<zero::bfloat16, zero::RoundToNearest>, or leave the second argument out.
#include "stage.hpp"

using Stage = zero::ZeroStage<2, zero::OptimizerState<float, zero::RoundToNearest>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
