// expect: zero::ZeroStage: there are no master weights to offload, because the parameters are their own; leave zero::BufferKind::master_weights out.
#include "host_memory.hpp"

using States =
    zero::To<zero::HostMemory, zero::BufferKind::optimizer_state, zero::BufferKind::master_weights>;
using Stage = zero::ZeroStage<2, zero::Loopback<Device>, zero::Offload<States>>;

int main() {
    train<Stage>(zero::Loopback<Device>::make_group(1).front());
}
