// expect: zero::ZeroStage: below stage 3 every rank reads all parameters in every pass, so they stay in memory; use stage 3, or leave zero::BufferKind::parameters out of Offload.
#include "stage.hpp"

#include <zero/stage/offload.hpp>

using Stage =
    zero::ZeroStage<2, zero::Offload<zero::To<zero::FileTier, zero::BufferKind::optimizer_state,
                                              zero::BufferKind::parameters>>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
