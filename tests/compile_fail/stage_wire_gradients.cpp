// expect: zero: a Codec needs 'static constexpr std::size_t bytes_per_block' (bytes of 64 elements). To send values as they are, write zero::Plain.
#include "stage.hpp"

#include <zero/stage/wire.hpp>

using Stage = zero::ZeroStage<3, zero::Wire<zero::Plain, float>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
