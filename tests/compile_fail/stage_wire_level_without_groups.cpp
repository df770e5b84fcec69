// expect: zero::ZeroStage: zero::Level says how gradients travel inside a group and between replicas, and this communicator has no replicas; give zero::Wire one codec of gradients instead, or use zero::Groups with zero::Hybrid.
#include "stage.hpp"

#include <zero/stage/wire.hpp>

using Levels = zero::Level<zero::Plain, zero::Int8Blocks>;

int main() {
    auto ranks = zero::LoopbackCommunicator::make_group(1);
    train<zero::ZeroStage<2, zero::Wire<zero::Plain, Levels>>>(ranks.front());
}
