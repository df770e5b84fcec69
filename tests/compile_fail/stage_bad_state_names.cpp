// expect: zero: the 'state_names' of an Optimizer are 'static constexpr char const* state_names[states]', one name for each state
// expect: zero::ZeroStage: a policy was rejected
#include "stage.hpp"

struct Descent : zero::AdamW {
    static constexpr char const* state_names[1] = {"exp_avg"}; // of two states
};

using Stage = zero::ZeroStage<2, Descent>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
