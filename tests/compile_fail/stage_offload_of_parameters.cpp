// expect: zero: Offload moves the states that only the update uses; name zero::BufferKind::optimizer_state, zero::BufferKind::master_weights, or both.
#include "stage.hpp"

#include <zero/stage/offload.hpp>

using Stage =
    zero::ZeroStage<3, zero::Offload<zero::To<zero::FileTier, zero::BufferKind::optimizer_state,
                                              zero::BufferKind::parameters>>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
