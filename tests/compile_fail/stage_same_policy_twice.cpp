// expect: zero::ZeroStage: two loss scalers are given; give one.
#include "stage.hpp"

using Stage = zero::ZeroStage<0, zero::NoLossScaler, zero::NoLossScaler>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
