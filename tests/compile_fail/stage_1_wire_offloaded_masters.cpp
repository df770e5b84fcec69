// expect: zero::ZeroStage: in stages 1 and 2 zero::Wire encodes master weights, which must lie in memory when they are sent; leave zero::BufferKind::master_weights and zero::DelayedUpdate out of Offload, or use stage 3.
#include "stage.hpp"

#include <zero/stage/offload.hpp>
#include <zero/stage/wire.hpp>

using Stage =
    zero::ZeroStage<1, zero::Wire<zero::Int8Blocks>, zero::Parameters<zero::bfloat16>,
                    zero::Offload<zero::To<zero::FileTier, zero::BufferKind::master_weights>>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
