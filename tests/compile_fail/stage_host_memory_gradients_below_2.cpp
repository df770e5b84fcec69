// expect: zero::ZeroStage: below stage 2 every rank adds its gradients of the whole model, which stay on the device; use stage 2 or 3, or leave zero::BufferKind::gradients out of Offload.
#include "host_memory.hpp"

using States = zero::To<zero::HostMemory, zero::BufferKind::gradients>;
using Stage = zero::ZeroStage<1, zero::Parameters<zero::bfloat16>, zero::Loopback<Device>,
                              zero::Offload<States, zero::UpdateOnDevice>>;

int main() {
    train<Stage>(zero::Loopback<Device>::make_group(1).front());
}
