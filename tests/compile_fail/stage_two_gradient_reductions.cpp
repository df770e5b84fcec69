// expect: zero::ZeroStage: two GradientReduction policies are given; give one.
// expect: zero::ZeroStage: a policy was rejected
#include "stage.hpp"

using Stage =
    zero::ZeroStage<0, zero::GradientReduction<float>, zero::GradientReduction<zero::bfloat16>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
