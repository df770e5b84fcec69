// expect: zero::ZeroStage: zero::Wire sends sums between replicas in codes, so zero::HybridInFloat would send no float; write zero::Hybrid, or zero::Level<codec, zero::Plain> as the second argument of zero::Wire.
#include "stage.hpp"

#include <zero/comm/groups.hpp>
#include <zero/stage/wire.hpp>

using Hosts = zero::Groups<zero::LoopbackCommunicator, zero::HybridInFloat>;
using Wire = zero::Wire<zero::Plain, zero::Level<zero::Plain, zero::Int8Blocks>>;

int main() {
    auto ranks = zero::LoopbackCommunicator::make_group(1);
    Hosts hosts(ranks.front(), {.shard = 1});
    train<zero::ZeroStage<2, zero::GradientReduction<void, zero::bfloat16>, Hosts, Wire>>(hosts);
}
