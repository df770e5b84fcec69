// expect: zero: states in 8 bits are rounded stochastically, because to nearest a second moment would never shrink; write zero::BlockScaledState<zero::float8_e4m3>.
// nvcc
#include "stage.hpp"

using Stage = zero::ZeroStage<2, zero::BlockScaledState<zero::float8_e4m3, zero::RoundToNearest>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
