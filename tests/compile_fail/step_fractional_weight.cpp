// expect: zero: the weight of a step is a number of tokens or samples, an integer; a fraction would be truncated.
#include <zero/zero.hpp>

void end(zero::ZeroStage<2>& engine) {
    engine.step(0.1, 0.5);
}

int main() {}
