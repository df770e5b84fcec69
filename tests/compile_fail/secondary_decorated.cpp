// expect: zero: a decorator hides the parts of zero::Groups, so an engine on it would run flat; decorate the parts, and give them to zero::Groups.
#include "stage.hpp"

#include <zero/comm/recording.hpp>
#include <zero/comm/secondary.hpp>

using Hosts = zero::Groups<zero::LoopbackCommunicator, zero::Secondary>;

int main() {
    auto ranks = zero::LoopbackCommunicator::make_group(1);
    Hosts hosts(ranks.front(), {.secondary = 2});
    zero::Recording<Hosts> recording(hosts);
}
