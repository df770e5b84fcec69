// expect: zero::Groups: a role is given twice, and the outer one would hide the ranks of the inner one; leave one of them out.
// expect: zero::Experts has the role of zero::ModelParallel: {.experts = E, .model = M}.
#include "stage.hpp"

#include <zero/comm/experts.hpp>

using Ranks = zero::Groups<zero::LoopbackCommunicator, zero::ModelParallel>;

int main() {
    auto ranks = zero::LoopbackCommunicator::make_group(1);
    Ranks parts(ranks.front(), {.model = 1});
    zero::Groups<Ranks, zero::Experts> experts(parts, {.experts = 1});
}
