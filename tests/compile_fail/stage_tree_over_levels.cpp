// expect: zero::ZeroStage: TreeReduction needs a communicator that adds in a tree (reduce_scatter with zero::ops::TreeSum, and position()), and this one has its own order; use zero::LoopbackCommunicator, zero::mpi::Communicator, zero::torch::ProcessGroupCommunicator, zero::Loopback<zero::cuda::Backend>, zero::cuda::NcclCommunicator with cuda::NcclOrder::rank or zero::Hierarchical over these, or zero::GradientReduction.
#include "stage.hpp"

#include <zero/comm/hierarchical.hpp>

#include <span>
#include <utility>

// One level adds in rank order only, so the levels do.
struct RankOrder : zero::LoopbackCommunicator {
    template <class T>
    void reduce_scatter(T const* send, T* receive, std::span<std::size_t const> cuts, Queue queue,
                        zero::CollectiveTag tag = {}) {
        zero::LoopbackCommunicator::reduce_scatter(send, receive, cuts, queue, tag);
    }
};

using Levels = zero::Hierarchical<zero::LoopbackCommunicator, RankOrder>;

int main() {
    auto ranks = zero::LoopbackCommunicator::make_group(1);
    RankOrder outer{zero::LoopbackCommunicator(std::move(ranks.front()))};
    Levels levels(outer, outer);
    train<zero::ZeroStage<1, zero::TreeReduction<>, Levels>>(levels);
}
