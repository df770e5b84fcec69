// expect: zero::Groups: this communicator has no 'split'; split the one below, and give its parts: Groups(everyone, shard, replicas).
#include "stage.hpp"

#include <zero/comm/groups.hpp>
#include <zero/comm/recording.hpp>

using Counted = zero::Recording<zero::LoopbackCommunicator>;

int main() {
    auto ranks = zero::LoopbackCommunicator::make_group(1);
    Counted counted(ranks.front());
    zero::Groups<Counted, zero::Hybrid> hosts(counted, {.shard = 1});
}
