// expect: zero::ZeroStage: two optimizers are given; give one.
// nvcc
#include "stage.hpp"

using Stage = zero::ZeroStage<3, zero::AdamW, zero::Sgd>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
