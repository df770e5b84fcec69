#include "scripted_nccl.hpp"
#include "support/catch.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <vector>

// Collectives do not allocate, because a step must not.

namespace {

std::atomic<long> allocations{0};

void* take(std::size_t bytes) {
    ++allocations;
    if (void* const memory = std::malloc(bytes == 0 ? 1 : bytes)) {
        return memory;
    }
    throw std::bad_alloc();
}

} // namespace

void* operator new(std::size_t bytes) {
    return take(bytes);
}
void* operator new[](std::size_t bytes) {
    return take(bytes);
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete[](void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
    std::free(memory);
}

using namespace zero;
using namespace zero::test;

namespace {

/// Records nothing, and lets every call be polled twice.
class QuietNccl : public ScriptedNccl {
public:
    using ScriptedNccl::ScriptedNccl;

    Result get_async_error(Handle, Result& error) noexcept override {
        error = _questions == 0 ? Result::success : Result::in_progress;
        _questions -= _questions == 0 ? 0 : 1;
        return Result::success;
    }
    Result group_start() noexcept override { return Result::success; }
    Result group_end() noexcept override { return begin(); }
    Result reduce(void const*, void*, std::size_t, Type, Reduction, int, Handle,
                  Stream) noexcept override {
        return Result::success;
    }
    Result broadcast(void const*, void*, std::size_t, Type, int, Handle, Stream) noexcept override {
        return Result::success;
    }
    Result all_reduce(void const*, void*, std::size_t, Type, Reduction, Handle,
                      Stream) noexcept override {
        return begin();
    }
    Result reduce_scatter(void const*, void*, std::size_t, Type, Reduction, Handle,
                          Stream) noexcept override {
        return begin();
    }
    Result all_gather(void const*, void*, std::size_t, Type, Handle, Stream) noexcept override {
        return begin();
    }
    Result send(void const*, std::size_t, Type, int, Handle, Stream) noexcept override {
        return Result::success;
    }
    Result receive(void*, std::size_t, Type, int, Handle, Stream) noexcept override {
        return Result::success;
    }

private:
    Result begin() {
        _questions = 2;
        return Result::in_progress;
    }
    int _questions = 0;
};

class QuietSystem : public ScriptedSystem {
public:
    using ScriptedSystem::ScriptedSystem;
    int record_event(EventHandle, cuda::StreamHandle) noexcept override { return 0; }
    int is_event_complete(EventHandle, bool& is_complete) noexcept override {
        is_complete = (++_asked) % 3 == 0;
        return 0;
    }

private:
    int _asked = 0;
};

} // namespace

TEST_CASE("No collective allocates memory, whether native, grouped or polled, in either order") {
    auto const order = GENERATE(cuda::NcclOrder::library, cuda::NcclOrder::rank);
    Journal journal;
    QuietNccl nccl(journal);
    QuietSystem system(journal);
    cuda::NcclOptions options;
    options.watch_interval = std::chrono::milliseconds(0);
    options.order = order;
    auto communicator = Script::Communicator::from_unique_id({&nccl, &system}, {}, 1, 3, options);
    constexpr std::array<std::size_t, 4> even{0, 64, 128, 192};
    constexpr std::array<std::size_t, 4> uneven{0, 10, 13, 15};
    std::vector<float> memory(192);
    std::vector<float> pieces(192);
    std::vector<std::int64_t> integers(4);
    float* const all = memory.data();
    float const* const in = all;
    auto* const queue = Script::queue();

    long const before = allocations;
    for (int step = 0; step < 100; ++step) { // more than there are events
        for (auto const& cuts : {even, uneven}) {
            communicator.reduce_scatter(in, all + cuts[1], cuts, queue,
                                        {"gradients of a bucket with a long name", 3});
            communicator.exchange(in, pieces.data(), cuts, queue,
                                  {"pieces of a bucket with a long name", 3});
            communicator.all_gather(in + cuts[1], all, cuts, queue,
                                    {"parameters of a bucket with a long name", 3});
            communicator.all_reduce(in, all, cuts, queue,
                                    {"gradients of a bucket with a long name", 3});
        }
        communicator.broadcast(all, 5, 0, queue, {"values", 0});
        communicator.all_reduce_integers(integers.data(), 4, IntegerReduction::min, queue,
                                         {"integers", 0});
        communicator.rethrow_failure();
    }
    communicator.synchronise();
    long const taken = allocations - before;
    CHECK(taken == 0);
    CHECK(allocations > 0); // they are counted
}
