// expect: zero::ZeroStage: zero::Wire and zero::FrozenWeights need a backend that encodes; give it 'encode' and 'decode' as zero::HostBackend has them.
#include "stage.hpp"

#include <zero/stage/wire.hpp>

struct Bare : zero::HostBackend {
    static void encode() = delete;
};

using Stage = zero::ZeroStage<3, zero::Wire<zero::Int8Blocks>, zero::Loopback<Bare>>;

int main() {
    train<Stage>(zero::Loopback<Bare>::make_group(1).front());
}
