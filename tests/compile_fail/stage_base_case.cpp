// compiles
// nvcc
// The other cases differ from this one in one policy only.
#include "stage.hpp"

int main() {
    auto communicators = zero::LoopbackCommunicator::make_group(1);
    auto& communicator = communicators.front();
    train<zero::ZeroStage<2>>(communicator);
    train<zero::ZeroStage<3, zero::SizeCappedBucketer, zero::RoundRobinPartitioner, zero::Muon,
                          zero::GradientReduction<float>>>(communicator);
    train<zero::ZeroStage<0, zero::ContiguousPartitioner, zero::SingleBucketer,
                          zero::DynamicLossScaler, zero::Muon>>(communicator);
}
