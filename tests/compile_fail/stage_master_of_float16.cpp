// expect: zero::ZeroStage: master weights of the parameters' own 16-bit type are copies that keep nothing more
#include "stage.hpp"

using Stage =
    zero::ZeroStage<2, zero::Parameters<zero::float16>, zero::MasterWeights<zero::float16>>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
