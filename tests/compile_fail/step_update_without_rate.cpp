// expect: zero: step(update) also needs the learning rate, which the update reads as slice.learning_rate; write step(learning_rate, update).
#include <zero/zero.hpp>

void end(zero::ZeroStage<2>& engine) {
    engine.step([](auto const& slice) { (void)slice.weights(); });
}

int main() {}
