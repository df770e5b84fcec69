// expect: zero: the handle of acquire() is a temporary here, so it and its memory are released at the end of the statement; keep it in a variable.
// nvcc
#include "stage.hpp"

using Stage = zero::ZeroStage<3>;

int main() {
    auto communicators = zero::LoopbackCommunicator::make_group(1);
    Stage engine(communicators.front(), {{.name = "weight", .elements = 100}});
    auto const weights = engine.acquire(0);
    (void)weights[0]; // allowed: the handle is a variable
    engine.acquire(0)[0];
}
