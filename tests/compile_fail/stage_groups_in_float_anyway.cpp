// expect: zero::ZeroStage: gradients are communicated as float, so sums are sent between replicas as float anyway; write zero::Hybrid instead of zero::HybridInFloat.
#include "stage.hpp"

#include <zero/comm/groups.hpp>

using Hosts = zero::Groups<zero::LoopbackCommunicator, zero::HybridInFloat>;

int main() {
    auto ranks = zero::LoopbackCommunicator::make_group(1);
    Hosts hosts(ranks.front(), {.shard = 1});
    train<zero::ZeroStage<2, Hosts>>(hosts);
}
