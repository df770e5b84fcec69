// expect: zero::ZeroStage: encoded gradients are exchanged and then added, and this communicator has no 'exchange' (zero::Hierarchical has none); use a flat communicator, or leave the second argument of zero::Wire out.
#include "stage.hpp"

#include <zero/comm/hierarchical.hpp>
#include <zero/stage/wire.hpp>

using Levels = zero::Hierarchical<zero::LoopbackCommunicator, zero::LoopbackCommunicator>;
using Stage = zero::ZeroStage<2, Levels, zero::Wire<zero::Plain, zero::Int8Blocks>>;

int main() {
    auto ranks = zero::LoopbackCommunicator::make_group(1);
    Levels levels(ranks.front(), ranks.front());
    train<Stage>(levels);
}
