// expect: zero::ZeroStage: HostMemory holds states and the sums of gradients; name some of zero::BufferKind::optimizer_state, master_weights, gradients and parameters, and nothing else.
#include "host_memory.hpp"

using States = zero::To<zero::HostMemory, zero::BufferKind::gradient_leases>;
using Stage = zero::ZeroStage<2, zero::Parameters<zero::bfloat16>, zero::Loopback<Device>,
                              zero::Offload<States, zero::UpdateOnDevice>>;

int main() {
    train<Stage>(zero::Loopback<Device>::make_group(1).front());
}
