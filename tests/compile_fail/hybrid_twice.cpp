// expect: zero::Groups: a role is given twice, and the outer one would hide the ranks of the inner one; leave one of them out.
#include "stage.hpp"

#include <zero/comm/groups.hpp>

using Inner = zero::Groups<zero::LoopbackCommunicator, zero::Hybrid>;

int main() {
    auto ranks = zero::LoopbackCommunicator::make_group(1);
    Inner inner(ranks.front(), {.shard = 1});
    zero::Groups<Inner, zero::HybridInFloat> outer(inner, {.shard = 1});
}
