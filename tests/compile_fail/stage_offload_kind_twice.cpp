// expect: zero: Offload names a kind of states twice; name it once.
#include "stage.hpp"

#include <zero/stage/offload.hpp>

using Stage =
    zero::ZeroStage<1, zero::Offload<zero::To<zero::FileTier, zero::BufferKind::optimizer_state,
                                              zero::BufferKind::optimizer_state>>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
