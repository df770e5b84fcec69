// expect: zero: gradient, communication and accumulation types are float, zero::bfloat16 or zero::float16 (void: the default).
#include "stage.hpp"

using Stage = zero::ZeroStage<2, zero::GradientReduction<int>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
