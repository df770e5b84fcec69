// expect: zero::ZeroStage: a template argument is not a policy
// expect: zero::ZeroStage: a policy was rejected
// nvcc
#include "stage.hpp"

struct Trainer {};

using Stage = zero::ZeroStage<2, Trainer>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
