// expect: zero::ZeroStage: zero::Wire encodes gradients for one level of ranks, and zero::Hybrid adds them again between replicas; use the communicator without zero::Hybrid, or leave the second argument of zero::Wire out.
#include "stage.hpp"

#include <zero/comm/groups.hpp>
#include <zero/stage/wire.hpp>

using Hosts = zero::Groups<zero::LoopbackCommunicator, zero::Hybrid>;
using Stage = zero::ZeroStage<2, Hosts, zero::Wire<zero::Plain, zero::Int8Blocks>>;

int main() {
    auto ranks = zero::LoopbackCommunicator::make_group(1);
    Hosts hosts(ranks.front(), {.shard = 1});
    train<Stage>(hosts);
}
