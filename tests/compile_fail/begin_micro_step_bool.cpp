// expect: zero: begin_micro_step takes zero::MicroStep::last for the last micro-step of a step
// nvcc
#include <zero/zero.hpp>

void run(zero::ZeroStage<2>& engine) {
    engine.begin_micro_step(true);
}

int main() {}
