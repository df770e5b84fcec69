// expect: zero: a Backend needs the member types 'Queue' (a handle), 'Event' and 'OwnedQueue'
// expect: zero::ZeroStage: a policy was rejected
// nvcc
#include "stage.hpp"

struct Bare {
    using Queue = int;
};

struct Telegraph : zero::LoopbackCommunicator {
    using Backend = Bare;
};

int main() {
    auto group = zero::LoopbackCommunicator::make_group(1);
    train<zero::ZeroStage<2, zero::AdamW, Telegraph>>(group.front());
}
