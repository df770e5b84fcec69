// expect: zero::ZeroStage: float parameters are their own master weights; leave MasterWeights<float> out.
#include "stage.hpp"

using Stage = zero::ZeroStage<2, zero::MasterWeights<float>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
