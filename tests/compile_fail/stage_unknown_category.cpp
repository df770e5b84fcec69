// expect: zero::ZeroStage: a policy names a category that does not exist
// expect: zero::ZeroStage: a policy was rejected
#include "stage.hpp"

struct ColourCategory {};
struct Red {
    using policy_category = ColourCategory;
};

using Stage = zero::ZeroStage<1, Red>;

int main() {
    train<Stage>(zero::LoopbackCommunicator::make_group(1).front());
}
