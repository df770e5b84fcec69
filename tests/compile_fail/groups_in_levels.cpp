// expect: zero: a Hierarchical communicator hides the parts of zero::Groups, so an engine on it would run flat; give it the parts, or Hierarchical ones to zero::Groups.
#include "stage.hpp"

#include <zero/comm/groups.hpp>
#include <zero/comm/hierarchical.hpp>

using Hosts = zero::Groups<zero::LoopbackCommunicator, zero::Hybrid>;

int main() {
    auto ranks = zero::LoopbackCommunicator::make_group(1);
    Hosts hosts(ranks.front(), {.shard = 1});
    zero::Hierarchical<Hosts, zero::LoopbackCommunicator> levels(hosts, ranks.front());
}
