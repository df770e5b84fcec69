// expect: zero::ZeroStage: two partitioners are given; give one.
// expect: zero::ZeroStage: a policy was rejected
#include "stage.hpp"

using Stage =
    zero::ZeroStage<2, zero::ContiguousPartitioner, zero::AdamW, zero::RoundRobinPartitioner>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
