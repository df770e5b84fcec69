// expect: zero::Groups: zero::Hybrid around another role would hide its ranks; write zero::Groups<zero::Groups<C, zero::Hybrid>, Role>.
#include "stage.hpp"

#include <zero/comm/groups.hpp>
#include <zero/comm/secondary.hpp>

using Inner = zero::Groups<zero::LoopbackCommunicator, zero::Secondary>;

int main() {
    auto ranks = zero::LoopbackCommunicator::make_group(1);
    Inner inner(ranks.front(), {.secondary = 2});
    zero::Groups<Inner, zero::Hybrid> outer(inner, {.shard = 1});
}
