// expect: zero: states in 8 bits are rounded stochastically, because to nearest a second moment would never shrink; write zero::BlockScaledState<zero::power8>.
// nvcc
#include "stage.hpp"

using Stage = zero::ZeroStage<2, zero::BlockScaledState<zero::power8, zero::RoundToNearest>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
