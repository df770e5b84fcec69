// expect: zero: an AnyCommunicator hides the parts of zero::Groups, so an engine on it would run flat; give it the parts, or AnyCommunicators to zero::Groups.
#include "stage.hpp"

#include <zero/comm/any_communicator.hpp>
#include <zero/comm/groups.hpp>

using Everyone = zero::LoopbackCommunicator;
using Hosts = zero::Groups<Everyone, zero::Hybrid>;

int main() {
    auto ranks = Everyone::make_group(1);
    Hosts hosts(ranks.front(), {.shard = 1});
    zero::AnyCommunicator<Everyone, Hosts> chosen(&hosts);
}
