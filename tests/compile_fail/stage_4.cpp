// expect: zero::ZeroStage: there is no such stage; write 0, 1, 2 or 3.
// expect: zero::ZeroStage: a policy was rejected
// nvcc
#include "stage.hpp"

using Stage = zero::ZeroStage<4, zero::AdamW>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
