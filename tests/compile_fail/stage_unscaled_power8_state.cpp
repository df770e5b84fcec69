// expect: zero: states of an optimizer are float or bfloat16, or float16 or power8 with a scale, without which second moments vanish; write zero::OptimizerState<float>, zero::OptimizerState<zero::bfloat16>, zero::BlockScaledState<zero::float16> or zero::BlockScaledState<zero::power8>.
#include "stage.hpp"

using Stage = zero::ZeroStage<2, zero::OptimizerState<zero::power8>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
