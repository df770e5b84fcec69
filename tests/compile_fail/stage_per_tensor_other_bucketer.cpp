// expect: zero::ZeroStage: the partitioner requires its own bucketer, and with another one it would not cut as it says; leave the bucketer out (zero::PerTensorPartitioner requires zero::ParameterBucketer).
// expect: zero::ZeroStage: a policy was rejected
#include "stage.hpp"

using Stage = zero::ZeroStage<1, zero::SizeCappedBucketer, zero::PerTensorPartitioner>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
