// compiles
#include "stage.hpp"

#include <zero/stage/update_on_host.hpp>

struct Device : zero::HostBackend {
    static constexpr bool is_device = true;
    static zero::MemoryResource& staging_memory() { return default_memory(); }
    static void run_on_host(Queue queue, void (*function)(void*), void* argument) {
        queue->enqueue([=] { function(argument); });
    }
};

using States =
    zero::To<zero::HostMemory, zero::BufferKind::optimizer_state, zero::BufferKind::master_weights>;
using Stage = zero::ZeroStage<2, zero::Parameters<zero::bfloat16>, zero::Loopback<Device>,
                              zero::Offload<States>>;
template class zero::Engine<zero::detail::config_of_t<Stage>>;

int main() {}
