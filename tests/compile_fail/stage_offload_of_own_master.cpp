// expect: zero::ZeroStage: there are no master weights to offload, because the parameters are their own; leave zero::BufferKind::master_weights out.
#include "stage.hpp"

#include <zero/stage/offload.hpp>

using Stage =
    zero::ZeroStage<1, zero::Offload<zero::To<zero::FileTier, zero::BufferKind::optimizer_state,
                                              zero::BufferKind::master_weights>>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
