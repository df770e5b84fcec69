// expect: zero::ZeroStage: in stage 3 a bucket must not span units
// expect: use zero::UnitBucketer or zero::SizeCappedBucketer
#include "stage.hpp"

using Stage = zero::ZeroStage<3, zero::SingleBucketer>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
