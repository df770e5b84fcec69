// expect: zero: a decorator hides the parts of zero::Groups, so an engine on it would run flat; decorate the parts, and give them to zero::Groups.
#include "stage.hpp"

#include <zero/comm/model_parallel.hpp>
#include <zero/comm/recording.hpp>

using Ranks = zero::Groups<zero::LoopbackCommunicator, zero::ModelParallel>;

int main() {
    auto ranks = zero::LoopbackCommunicator::make_group(1);
    Ranks parts(ranks.front(), {.model = 1});
    zero::Recording<Ranks> recording(parts);
}
