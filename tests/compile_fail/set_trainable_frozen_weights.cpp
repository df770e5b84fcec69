// expect: zero::set_trainable, add_parameters, remove_parameters: zero::Wire and zero::FrozenWeights keep codes and errors by bucket, and these calls make other buckets; save a checkpoint, and load it with may_thaw into an engine whose registration says what is trainable, or with may_differ into one with other parameters.
#include "stage.hpp"

#include <zero/stage/live_changes.hpp>
#include <zero/stage/wire.hpp>

using Stage = zero::ZeroStage<3, zero::FrozenWeights<zero::Int8Blocks>>;

int main() {
    auto group = zero::LoopbackCommunicator::make_group(1);
    Stage engine(group.front(), std::vector<Stage::Registration>(1));
    zero::set_trainable(engine, 0, true);
}
