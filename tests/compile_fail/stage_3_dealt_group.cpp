// expect: zero::ZeroStage: in stage 3 the partitioner must not cut the whole group, because each unit would lie on few ranks, which then send all of it;
// expect: use zero::ContiguousPartitioner, or zero::BalancedPartitioner for whole parameters.
#include "stage.hpp"

using Stage = zero::ZeroStage<3, zero::DealtGroupPartitioner>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
