// expect: zero::ZeroStage: a FileTier reads and writes memory of the host, and this communicator's backend is a device; leave Offload out, or use a communicator on the host.
#include "stage.hpp"

#include <zero/stage/offload.hpp>

struct Device : zero::HostBackend {
    static constexpr bool is_device = true;
};

using Stage =
    zero::ZeroStage<1, zero::Loopback<Device>,
                    zero::Offload<zero::To<zero::FileTier, zero::BufferKind::optimizer_state>>>;

int main() {
    train<Stage>(zero::Loopback<Device>::make_group(1).front());
}
