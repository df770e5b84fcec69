// expect: zero::Groups: this communicator has no 'split'; give the parts: Groups(data, model).
#include "stage.hpp"

#include <zero/comm/model_parallel.hpp>
#include <zero/comm/recording.hpp>

using Counted = zero::Recording<zero::LoopbackCommunicator>;

int main() {
    auto ranks = zero::LoopbackCommunicator::make_group(1);
    Counted counted(ranks.front());
    zero::Groups<Counted, zero::ModelParallel> parts(counted, {.model = 1});
}
