// expect: zero: all offloaded states of an engine lie in one tier; write zero::Offload<zero::To<zero::FileTier, kinds...>> with every kind in one To, and after it nothing, or zero::DelayedUpdate, or for zero::HostMemory zero::UpdateOnDevice. Include zero/stage/offload.hpp for zero::FileTier, and zero/policy/host_memory.hpp for zero::HostMemory.
#include "stage.hpp"

#include <zero/stage/offload.hpp>

using Stage =
    zero::ZeroStage<1, zero::Offload<zero::To<zero::FileTier, zero::BufferKind::optimizer_state>,
                                     zero::To<zero::FileTier, zero::BufferKind::optimizer_state>>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
