// expect: zero::ZeroStage: the first argument is not the communicator of this stage, which is ZeroStage<...>::Communicator; name the communicator's type among the policies
#include "stage.hpp"

int main() {
    auto group = zero::LoopbackCommunicator::make_group(1);
    zero::Recording<zero::LoopbackCommunicator> communicator(group.front());
    train<zero::ZeroStage<2>>(communicator);
}
