// expect: zero: parameters are float, zero::bfloat16 or zero::float16; write zero::Parameters<zero::bfloat16>, for example.
#include "stage.hpp"

using Stage = zero::ZeroStage<2, zero::Parameters<double>>;

int main() { train<Stage>(zero::LoopbackCommunicator::make_group(1).front()); }
