// expect: zero::ZeroStage: zero::Wire needs a backend that encodes gradients; give it 'encode' of zero::CodedSlice, 'decode_sum' and, for zero::ErrorFeedback, 'encode_with_feedback' as zero::HostBackend has them.

#include "stage.hpp"

#include <zero/stage/wire.hpp>

struct Bare : zero::HostBackend {
    static void decode_sum() = delete;
};

using Stage = zero::ZeroStage<3, zero::Wire<zero::Plain, zero::Int8Blocks>, zero::Loopback<Bare>>;

int main() {
    train<Stage>(zero::Loopback<Bare>::make_group(1).front());
}
