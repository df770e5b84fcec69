// expect: zero::ZeroStage: StochasticRounding is for 16-bit parameters, and float ones are not rounded at all; leave it out
#include "stage.hpp"

using Stage = zero::ZeroStage<2, zero::StochasticRounding>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
