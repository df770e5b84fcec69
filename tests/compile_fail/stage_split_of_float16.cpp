// expect: zero::ZeroStage: SplitMasterWeights completes bfloat16 parameters to floats; write zero::Parameters<zero::bfloat16>
#include "stage.hpp"

using Stage = zero::ZeroStage<2, zero::Parameters<zero::float16>, zero::SplitMasterWeights>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
