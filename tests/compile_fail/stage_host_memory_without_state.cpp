// expect: zero::ZeroStage: the host updates what lies in HostMemory, so all of it must lie there; name zero::BufferKind::optimizer_state, and zero::BufferKind::master_weights if the parameters are not their own, or write zero::Offload<zero::To<...>, zero::UpdateOnDevice>.
#include "host_memory.hpp"

using States = zero::To<zero::HostMemory, zero::BufferKind::master_weights>;
using Stage = zero::ZeroStage<2, zero::Parameters<zero::bfloat16>, zero::Loopback<Device>,
                              zero::Offload<States>>;

int main() {
    train<Stage>(zero::Loopback<Device>::make_group(1).front());
}
