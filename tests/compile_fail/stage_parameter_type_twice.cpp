// expect: zero: parameters are float, zero::bfloat16 or zero::float16, each at most once; write zero::Parameters<zero::bfloat16>, or zero::Parameters<zero::bfloat16, float> for a model with both.
#include "stage.hpp"

using Stage = zero::ZeroStage<2, zero::Parameters<float, float>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
