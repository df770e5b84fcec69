// expect: zero::ZeroStage: zero::Groups shards the states over a group, and stage 0 shards nothing; use stage 1, 2 or 3, or the communicator without Groups.
#include "stage.hpp"

#include <zero/comm/groups.hpp>

using Hosts = zero::Groups<zero::LoopbackCommunicator, zero::Hybrid>;

int main() {
    auto ranks = zero::LoopbackCommunicator::make_group(1);
    Hosts hosts(ranks.front(), {.shard = 1});
    train<zero::ZeroStage<0, Hosts>>(hosts);
}
