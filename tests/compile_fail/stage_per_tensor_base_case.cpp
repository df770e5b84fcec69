// compiles
#include "stage.hpp"

// A partitioner's own bucketer may be named; in stage 3 it is also the default. The other bucketers
// serve wherever nothing forbids them.
using Named = zero::ZeroStage<1, zero::ParameterBucketer, zero::PerTensorPartitioner>;
using Default = zero::ZeroStage<3, zero::PerTensorPartitioner>;
static_assert(std::is_same_v<Default::Options, zero::ZeroStage<3, zero::PerTensorPartitioner,
                                                               zero::ParameterBucketer>::Options>);
using Whole = zero::ZeroStage<2, zero::WholeGroupPartitioner, zero::ParameterBucketer>;
using Balanced = zero::ZeroStage<3, zero::BalancedPartitioner, zero::SizeCappedBucketer>;

int main() {
    auto communicator = zero::LoopbackCommunicator::make_group(1);
    train<Named>(communicator.front());
    train<Default>(communicator.front());
    train<Whole>(communicator.front());
    train<Balanced>(communicator.front());
}
