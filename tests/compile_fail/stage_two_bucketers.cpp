// expect: zero::ZeroStage: two bucketers are given; give one.
// expect: zero::ZeroStage: a policy was rejected
#include "stage.hpp"

using Stage = zero::ZeroStage<1, zero::SizeCappedBucketer, zero::AdamW, zero::UnitBucketer>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
