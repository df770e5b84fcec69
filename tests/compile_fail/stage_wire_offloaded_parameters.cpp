// expect: zero::ZeroStage: offloaded parameters are read into the memory that zero::Wire and zero::FrozenWeights decode to; leave zero::BufferKind::parameters out of Offload, or the codec out.
#include "stage.hpp"

#include <zero/stage/offload.hpp>
#include <zero/stage/wire.hpp>

using Stage =
    zero::ZeroStage<3, zero::Wire<zero::Int8Blocks>,
                    zero::Offload<zero::To<zero::FileTier, zero::BufferKind::parameters>>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
