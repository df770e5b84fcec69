// expect: deleted
// expect: OptionsDoNotFitSoWriteStageOptionsBeforeTheBraces
// nvcc
#include <zero/zero.hpp>

void train(zero::LoopbackCommunicator& communicator) {
    zero::ZeroStage<2> const engine(communicator, {{.name = "weight", .elements = 100}},
                                    {.gradient_cliping = 1.0F});
}

int main() {}
