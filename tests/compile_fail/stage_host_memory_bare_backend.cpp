// expect: zero::ZeroStage: HostMemory needs a backend that has memory of the host and can call it; give it 'static zero::MemoryResource& staging_memory()' and 'static void run_on_host(Queue, void (*)(void*), void*)', as zero::cuda::Backend has them.
#include "stage.hpp"

#include <zero/stage/update_on_host.hpp>

struct Device : zero::HostBackend {
    static constexpr bool is_device = true;
    static zero::MemoryResource& staging_memory() { return default_memory(); }
};

using States =
    zero::To<zero::HostMemory, zero::BufferKind::optimizer_state, zero::BufferKind::master_weights>;
using Stage = zero::ZeroStage<2, zero::Parameters<zero::bfloat16>, zero::Loopback<Device>,
                              zero::Offload<States>>;

int main() {
    train<Stage>(zero::Loopback<Device>::make_group(1).front());
}
