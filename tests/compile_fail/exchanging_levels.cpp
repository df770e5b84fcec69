// expect: Hierarchical has none, because every piece crosses between groups in any case: exchange over a flat group.
#include <zero/comm/hierarchical.hpp>
#include <zero/comm/loopback.hpp>

using Levels = zero::Hierarchical<zero::LoopbackCommunicator, zero::LoopbackCommunicator>;

static_assert(zero::diagnose_exchanging_communicator<Levels>());

int main() {}
