// expect: zero::ZeroStage: in stage 3 the partitioner must not cut the whole group, because each unit would lie on few ranks, which then send all of it;
// expect: use zero::ContiguousPartitioner, or zero::BalancedPartitioner for whole parameters.
// errors-at-most: 2
#include "stage.hpp"

using Stage = zero::ZeroStage<3, zero::WholeGroupPartitioner>;

int main() {
    // Its first use is outside of a template. A rejected stage 3 has the options of stage 3.
    Stage::Options const options{.bucketer = zero::UnitBucketerOptions{}};
    auto communicators = zero::LoopbackCommunicator::make_group(1);
    Stage engine(communicators.front(), {{.name = "weight", .elements = 100}}, options);
    train<Stage>(communicators.front());
}
