// expect: zero::ZeroStage: two Offload policies are given; give one, with every kind in one zero::To.
#include "stage.hpp"

#include <zero/stage/offload.hpp>

using States = zero::Offload<zero::To<zero::FileTier, zero::BufferKind::optimizer_state>>;
using Stage = zero::ZeroStage<1, States, zero::NoOffload>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
