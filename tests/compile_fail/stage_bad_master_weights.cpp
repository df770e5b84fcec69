// expect: zero: master weights are float or float16; write zero::MasterWeights<float> or zero::NoMasterWeights.
#include "stage.hpp"

using Stage = zero::ZeroStage<2, zero::Parameters<zero::bfloat16>, zero::MasterWeights<double>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
