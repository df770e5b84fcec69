// expect: zero: Offload moves the states that a rank holds between steps; name zero::BufferKind::optimizer_state, zero::BufferKind::master_weights, and in stage 3 zero::BufferKind::parameters.
#include "stage.hpp"

#include <zero/stage/offload.hpp>

using Stage =
    zero::ZeroStage<2, zero::Offload<zero::To<zero::FileTier, zero::BufferKind::gradient_leases>>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
