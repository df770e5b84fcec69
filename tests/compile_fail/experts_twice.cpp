// expect: zero::Groups: a role is given twice, and the outer one would hide the ranks of the inner one; leave one of them out.
#include "stage.hpp"

#include <zero/comm/experts.hpp>

using Inner = zero::Groups<zero::LoopbackCommunicator, zero::Experts>;

int main() {
    auto ranks = zero::LoopbackCommunicator::make_group(1);
    Inner inner(ranks.front(), {.experts = 1});
    zero::Groups<Inner, zero::Experts> outer(inner, {.experts = 1});
}
