// expect: zero::Groups: a role is given twice, and the outer one would hide the ranks of the inner one; leave one of them out.
#include "stage.hpp"

#include <zero/comm/secondary.hpp>

using Hosts = zero::Groups<zero::LoopbackCommunicator, zero::Secondary>;

int main() {
    auto ranks = zero::LoopbackCommunicator::make_group(1);
    Hosts hosts(ranks.front(), {.secondary = 2});
    zero::Groups<Hosts, zero::Secondary> again(hosts, {.secondary = 2});
}
