// expect: zero: a decorator hides the parts of zero::Groups, so an engine on it would run flat; decorate the parts, and give them to zero::Groups.
#include "stage.hpp"

#include <zero/comm/groups.hpp>
#include <zero/comm/recording.hpp>

using Hosts = zero::Groups<zero::LoopbackCommunicator, zero::Hybrid>;

int main() {
    auto ranks = zero::LoopbackCommunicator::make_group(1);
    Hosts hosts(ranks.front(), {.shard = 1});
    zero::Recording<Hosts> recording(hosts);
}
