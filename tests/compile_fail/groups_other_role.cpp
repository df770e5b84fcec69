// expect: zero::Groups: the role must be zero::Hybrid or zero::HybridInFloat.
#include "stage.hpp"

#include <zero/comm/groups.hpp>

int main() {
    auto ranks = zero::LoopbackCommunicator::make_group(1);
    zero::Groups<zero::LoopbackCommunicator, int> hosts(ranks.front(), {.shard = 1});
}
