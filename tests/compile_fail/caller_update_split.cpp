// expect: zero: a caller-defined update cannot write master weights that are stored in parts
// nvcc
#include "stage.hpp"

using Stage = zero::ZeroStage<2, zero::Parameters<zero::bfloat16>, zero::SplitMasterWeights>;

int main() {
    auto communicators = zero::LoopbackCommunicator::make_group(1);
    Stage engine(communicators.front(), {{.name = "weight", .elements = 100}});
    engine.begin_step();
    engine.step(0.1, [](auto const& slice) { (void)slice.values; });
}
