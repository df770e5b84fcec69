// expect: zero::ZeroStage: two MasterWeights policies are given; give one.
// expect: zero::ZeroStage: a policy was rejected
#include "stage.hpp"

using Stage = zero::ZeroStage<3, zero::Parameters<zero::bfloat16>, zero::MasterWeights<float>,
                              zero::SplitMasterWeights>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
