// expect: zero::ZeroStage: an optimizer of whole parameters works on plain arrays; use zero::OptimizerState<float> or <zero::bfloat16> instead of BlockScaledState, and zero::MasterWeights<float> instead of StochasticRounding.
#include "stage.hpp"

using Stage = zero::ZeroStage<2, zero::Lamb, zero::BalancedPartitioner, zero::StochasticRounding>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
