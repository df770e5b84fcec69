// expect: zero::ZeroStage: with DelayedUpdate a pass reads the parameters that the last update has not changed yet, and the file, or the memory of the host, would hold both; leave zero::BufferKind::parameters or zero::DelayedUpdate out of Offload.
#include "stage.hpp"

#include <zero/stage/offload.hpp>

using Stage =
    zero::ZeroStage<3, zero::Offload<zero::To<zero::FileTier, zero::BufferKind::optimizer_state,
                                              zero::BufferKind::parameters>,
                                     zero::DelayedUpdate>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
