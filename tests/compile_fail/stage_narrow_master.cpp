// expect: zero::ZeroStage: the type of the master weights would lose bits of the parameters; use zero::MasterWeights<float>
#include "stage.hpp"

using Stage = zero::ZeroStage<2, zero::MasterWeights<zero::float16>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
