// expect: zero::ZeroStage: TreeReduction sends the gradient of each micro-batch as it is, and this communication type cannot hold all values of the gradient type; leave it out, or use float.
#include "stage.hpp"

int main() {
    train<zero::ZeroStage<1, zero::TreeReduction<float, zero::bfloat16>>>(
        zero::LoopbackCommunicator::make_group(1).front());
}
