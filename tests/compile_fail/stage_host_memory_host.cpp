// expect: zero::ZeroStage: HostMemory is for states of a device, and this communicator's backend keeps them in memory of the host anyway; leave Offload out, or use zero::FileTier.
#include "stage.hpp"

#include <zero/stage/update_on_host.hpp>

using States =
    zero::To<zero::HostMemory, zero::BufferKind::optimizer_state, zero::BufferKind::master_weights>;
using Stage = zero::ZeroStage<2, zero::Parameters<zero::bfloat16>, zero::LoopbackCommunicator,
                              zero::Offload<States>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
