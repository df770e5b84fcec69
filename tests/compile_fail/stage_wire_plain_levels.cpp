// expect: zero: zero::Level<zero::Plain, zero::Plain> encodes nothing; leave the second argument of zero::Wire out.
#include "stage.hpp"

#include <zero/comm/groups.hpp>
#include <zero/stage/wire.hpp>

using Hosts = zero::Groups<zero::LoopbackCommunicator, zero::Hybrid>;
using Levels = zero::Level<zero::Plain, zero::Plain>;

int main() {
    auto ranks = zero::LoopbackCommunicator::make_group(1);
    Hosts hosts(ranks.front(), {.shard = 1});
    train<zero::ZeroStage<2, Hosts, zero::Wire<zero::Int8Blocks, Levels>>>(hosts);
}
