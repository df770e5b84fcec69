// expect: zero::ZeroStage: there is no such stage; write 0, 1, 2 or 3.
#include "stage.hpp"

using Stage = zero::ZeroStage<-1>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
