// expect: zero::ZeroStage: two Parameters policies are given; give one.
// expect: zero::ZeroStage: a policy was rejected
#include "stage.hpp"

using Stage = zero::ZeroStage<2, zero::Parameters<float>, zero::Parameters<zero::bfloat16>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
