// expect: zero::Groups: zero::Experts over ranks that are model ranks already; divide all ranks with {.experts = E, .model = M}.
#include "stage.hpp"

#include <zero/comm/experts.hpp>

using Ranks = zero::Groups<zero::LoopbackCommunicator, zero::ModelParallel>;

int main() {
    auto ranks = zero::LoopbackCommunicator::make_group(1);
    Ranks parts(ranks.front(), {.model = 1});
    zero::Groups<Ranks, zero::Experts> experts(parts, {.experts = 1});
}
