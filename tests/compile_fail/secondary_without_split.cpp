// expect: zero::Groups: this communicator has no 'split'; split the one below, and give its part: Groups(everyone, secondary).
#include "stage.hpp"

#include <zero/comm/recording.hpp>
#include <zero/comm/secondary.hpp>

using Counted = zero::Recording<zero::LoopbackCommunicator>;

int main() {
    auto ranks = zero::LoopbackCommunicator::make_group(1);
    Counted counted(ranks.front());
    zero::Groups<Counted, zero::Secondary> hosts(counted, {.secondary = 2});
}
