// expect: zero::ZeroStage: the optimizer needs whole parameters, but the partitioner cuts them; use zero::BalancedPartitioner or zero::RoundRobinPartitioner.
#include "stage.hpp"

using Stage = zero::ZeroStage<1, zero::Muon>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
