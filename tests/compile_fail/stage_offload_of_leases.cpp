// expect: zero: Offload moves the states that only the update uses; name zero::BufferKind::optimizer_state, zero::BufferKind::master_weights, or both.
#include "stage.hpp"

#include <zero/stage/offload.hpp>

using Stage =
    zero::ZeroStage<2, zero::Offload<zero::To<zero::FileTier, zero::BufferKind::gradient_leases>>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
