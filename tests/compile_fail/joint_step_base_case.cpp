// compiles
#include "stage.hpp"

#include <zero/comm/experts.hpp>
#include <zero/stage/joint_step.hpp>

using Experts = zero::Groups<zero::LoopbackCommunicator, zero::Experts>;

void join(zero::ZeroStage<2>& dense, zero::ZeroStage<3, Experts>& experts) {
    zero::JointStep const joint(dense, experts);
}

int main() {}
