// expect: zero::Groups: zero::Secondary concerns the data ranks of a part; write zero::Groups<zero::Groups<C, zero::Secondary>, zero::ModelParallel>.
#include "stage.hpp"

#include <zero/comm/model_parallel.hpp>
#include <zero/comm/secondary.hpp>

using Ranks = zero::Groups<zero::LoopbackCommunicator, zero::ModelParallel>;

int main() {
    auto ranks = zero::LoopbackCommunicator::make_group(1);
    Ranks parts(ranks.front(), {.model = 1});
    zero::Groups<Ranks, zero::Secondary> hosts(parts, {.secondary = 2});
}
