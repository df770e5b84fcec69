// expect: AdamWOptions
// only nvcc
// nvcc 13.0 drops the names of a list that is assigned where the type depends on a template
// parameter. The value must not reach beta1, the first number.
#include "stage.hpp"

template <class Stage>
void configure(typename Stage::Options& options) {
    options.optimizer = {.weight_decay = 0.1};
}

void configure_stage(zero::ZeroStage<2>::Options& options) {
    configure<zero::ZeroStage<2>>(options);
}
