// expect: zero::ZeroStage: zero::Groups adds inside a group and then between groups, and TreeReduction adds all micro-batches in one tree; use the communicator without Groups, or zero::GradientReduction.
#include "stage.hpp"

#include <zero/comm/groups.hpp>

using Hosts = zero::Groups<zero::LoopbackCommunicator, zero::Hybrid>;

int main() {
    auto ranks = zero::LoopbackCommunicator::make_group(1);
    Hosts hosts(ranks.front(), {.shard = 1});
    train<zero::ZeroStage<2, zero::TreeReduction<>, Hosts>>(hosts);
}
