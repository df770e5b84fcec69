// expect: zero::JointStep: the engines have different loss scalers; name the same one in all stages.
#include "stage.hpp"

#include <zero/stage/joint_step.hpp>

void join(zero::ZeroStage<2>& dense, zero::ZeroStage<2, zero::DynamicLossScaler>& experts) {
    zero::JointStep const joint(dense, experts);
}

int main() {}
