// expect: deleted
// expect: ParametersDoNotFitSoWriteStageRegistrationBeforeTheBraces
#include <zero/zero.hpp>

void train(zero::LoopbackCommunicator& communicator) {
    zero::ZeroStage<2> const engine(communicator, {{.name = "weight", .element = 100}},
                                    {.gradient_clipping = 1.0F});
}

int main() {}
