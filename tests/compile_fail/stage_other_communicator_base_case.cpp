// compiles
// stage_other_communicator.cpp with the communicator's type among the policies.
#include "stage.hpp"

int main() {
    auto group = zero::LoopbackCommunicator::make_group(1);
    zero::Recording<zero::LoopbackCommunicator> communicator(group.front());
    train<zero::ZeroStage<2, zero::Recording<zero::LoopbackCommunicator>>>(communicator);
}
