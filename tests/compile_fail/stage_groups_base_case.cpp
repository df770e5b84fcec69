// compiles
// The other cases of groups differ from this one in one policy only.
#include "stage.hpp"

#include <zero/comm/groups.hpp>

using Hosts = zero::Groups<zero::LoopbackCommunicator, zero::Hybrid>;

int main() {
    auto ranks = zero::LoopbackCommunicator::make_group(1);
    Hosts hosts(ranks.front(), {.shard = 1});
    train<zero::ZeroStage<1, Hosts>>(hosts);
    train<zero::ZeroStage<3, Hosts>>(hosts);
}
