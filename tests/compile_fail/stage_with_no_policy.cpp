// expect: zero::ZeroStage: a template argument is not a policy
// expect: zero::ZeroStage: a policy was rejected
#include "stage.hpp"

struct Misnamed {};

int main() {
    train<zero::ZeroStage<2, zero::AdamW>::with<Misnamed>>(
        zero::LoopbackCommunicator::make_group(1).front());
}
