// compiles
// stage_other_communicator.cpp with the communicator's type among the policies, and one of a
// derived type.
#include "stage.hpp"

#include <utility>

struct Derived : zero::LoopbackCommunicator {};

int main() {
    auto group = zero::LoopbackCommunicator::make_group(1);
    zero::Recording<zero::LoopbackCommunicator> communicator(group.front());
    train<zero::ZeroStage<2, zero::Recording<zero::LoopbackCommunicator>>>(communicator);
    Derived derived{std::move(zero::LoopbackCommunicator::make_group(1)[0])};
    train<zero::ZeroStage<2>>(derived);
}
