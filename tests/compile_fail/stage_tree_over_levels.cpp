// expect: zero::ZeroStage: TreeReduction needs a communicator that adds in a tree (reduce_scatter with zero::ops::TreeSum), and this one has its own order; use zero::LoopbackCommunicator, zero::mpi::Communicator, zero::torch::ProcessGroupCommunicator, zero::Loopback<zero::cuda::Backend> or zero::cuda::NcclCommunicator with NcclOrder::rank, or zero::GradientReduction.
#include "stage.hpp"

#include <zero/comm/hierarchical.hpp>

using Levels = zero::Hierarchical<zero::LoopbackCommunicator, zero::LoopbackCommunicator>;

int main() {
    auto ranks = zero::LoopbackCommunicator::make_group(1);
    Levels levels(ranks.front(), ranks.front());
    train<zero::ZeroStage<1, zero::TreeReduction<>, Levels>>(levels);
}
