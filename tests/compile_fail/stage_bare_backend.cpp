// expect: zero: a Backend needs the member types 'Queue' (a handle), 'Event' and 'OwnedQueue'
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
    train<zero::ZeroStage<2, Telegraph>>(group.front());
}
