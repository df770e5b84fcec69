// expect: zero::ZeroStage: optimizers of whole parameters (Lamb, Muon) run on the host only; for a device add zero::Offload<zero::To<zero::HostMemory, zero::BufferKind::optimizer_state, zero::BufferKind::master_weights>>, or use AdamW, Adam, Sgd, Lion, Adagrad or a functor of one element.
// nvcc
#include "stage.hpp"

struct Device : zero::HostBackend {
    static constexpr bool is_device = true;
};

using Stage = zero::ZeroStage<1, zero::Muon, zero::Loopback<Device>>;

int main() {
    train<Stage>(zero::Loopback<Device>::make_group(1).front());
}
