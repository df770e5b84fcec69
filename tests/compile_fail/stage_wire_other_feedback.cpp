// expect: zero: the third argument of zero::Wire is zero::ErrorFeedback<float>, zero::ErrorFeedback of a codec, or zero::NoFeedback.
#include "stage.hpp"

#include <zero/stage/wire.hpp>

using Stage =
    zero::ZeroStage<2,
                    zero::Wire<zero::Plain, zero::Int8Blocks, zero::ErrorFeedback<zero::bfloat16>>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
