// expect: zero: offload_states() copies memory of the device in a thread of its own; give the engine's backend a 'struct Copier' and 'static MemoryResource& staging_memory()', as zero::cuda::Backend has them.
#include "host_memory.hpp"

#include <zero/stage/offload_states.hpp>

using Stage = zero::ZeroStage<2, zero::Loopback<Device>>;

int main() {
    auto group = zero::Loopback<Device>::make_group(1);
    Stage engine(group[0], {});
    zero::offload_states(engine);
}
