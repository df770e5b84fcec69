// expect: zero::ZeroStage: two communicators are given; give one.
// expect: zero::ZeroStage: a policy was rejected
#include "stage.hpp"

using Stage =
    zero::ZeroStage<2, zero::LoopbackCommunicator, zero::Recording<zero::LoopbackCommunicator>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
