// expect: zero::ZeroStage: below stage 3 every rank reads all parameters in every pass, so they stay in memory; use stage 3, or leave zero::BufferKind::parameters out of Offload.
#include "host_memory.hpp"

using States = zero::To<zero::HostMemory, zero::BufferKind::parameters>;
using Stage = zero::ZeroStage<2, zero::Parameters<zero::bfloat16>, zero::Loopback<Device>,
                              zero::Offload<States, zero::UpdateOnDevice>>;

int main() {
    train<Stage>(zero::Loopback<Device>::make_group(1).front());
}
