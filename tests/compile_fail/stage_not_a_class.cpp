// expect: zero::ZeroStage: a template argument is not a policy
#include "stage.hpp"

using Stage = zero::ZeroStage<2, zero::AdamW, int>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
