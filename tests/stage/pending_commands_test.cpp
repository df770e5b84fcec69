#include "norm_model.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <chrono>
#include <thread>
#include <vector>

#include <zero/stage/zero_stage.hpp>

// When a collective throws, the memory that enqueued commands still use is kept until they have
// run.

namespace zero::test::pending_commands_test {

namespace {

/// Pauses before each command, so that the last command is pending when the next collective throws.
class SlowQueue final : public host::ThreadedQueue {
public:
    SlowQueue()
        : ThreadedQueue(default_capacity, host::WhenFull::throw_error, host::Command([] {
                            std::this_thread::sleep_for(std::chrono::milliseconds(5));
                        })) {}
};

/// Counts buffers that are freed while the queue has pending commands.
class WatchingResource final : public MemoryResource {
public:
    explicit WatchingResource(host::Queue& queue) : _queue(&queue) {}
    void* allocate(std::size_t bytes, BufferKind kind) override {
        return _heap.allocate(bytes, kind);
    }
    void deallocate(void* memory, std::size_t bytes, BufferKind kind) noexcept override {
        bool const is_idle = _queue->record().is_complete();
        ++(is_idle ? freed : freed_too_early);
        if (!is_idle) {
            _queue->synchronise(); // the memory stays valid for the test itself
        }
        _heap.deallocate(memory, bytes, kind);
    }

    int freed = 0;
    int freed_too_early = 0;

private:
    host::Queue* _queue;
    HostMemoryResource _heap;
};

struct Seen {
    std::string type;
    int freed = 0;
    int freed_too_early = 0;
};

/// Returns the observations of rank 0 during `call(communicator, queue, resource)` while rank 1
/// runs `other(communicator)`.
template <class Call, class Other>
Seen observe(Call const& call, Other const& other) {
    Seen seen;
    auto const outcomes = run_and_observe(2, [&](LoopbackCommunicator& communicator) {
        if (communicator.rank() == 1) {
            other(communicator);
            return;
        }
        SlowQueue queue;
        WatchingResource resource(queue);
        try {
            call(communicator, queue, resource);
        } catch (...) {
            seen.freed = resource.freed;
            seen.freed_too_early = resource.freed_too_early;
            throw;
        }
    });
    seen.type = outcomes.ranks[0].type;
    return seen;
}

} // namespace

TEST_CASE("A gather on the host that meets another collective frees no memory in use") {
    Seen const seen = observe(
        [](LoopbackCommunicator& communicator, host::Queue& queue, MemoryResource& memory) {
            std::vector<std::uint64_t> const values{1, 2, 3};
            (void)zero::detail::gather_on_host(communicator, &queue, memory, values,
                                               CollectiveTag{"numbers", 0});
        },
        [](LoopbackCommunicator& communicator) {
            std::int64_t number = 0;
            communicator.broadcast(&number, 1, 0, HostBackend::default_compute_queue(),
                                   CollectiveTag{"another", 0});
        });
    CHECK(seen.type == "CollectiveMismatch");
    CHECK(seen.freed == 1);
    CHECK(seen.freed_too_early == 0);
}

TEST_CASE("Norms that meet another collective free no memory in use") {
    auto const accumulate = [](ZeroStage<2>& engine) {
        engine.begin_step();
        engine.begin_micro_step(MicroStep::last);
        engine.end_micro_step();
    };
    int freed_before = 0;
    Seen const seen = observe(
        [&](LoopbackCommunicator& communicator, host::Queue& queue, WatchingResource& memory) {
            ZeroStage<2> engine(communicator, registration<float>(toy_specs()),
                                {.communication_queue = &queue, .memory = &memory});
            accumulate(engine);
            freed_before = memory.freed;
            (void)engine.gradient_norms(NormKind::l1);
        },
        [&](LoopbackCommunicator& communicator) {
            ZeroStage<2> engine(communicator, registration<float>(toy_specs()));
            accumulate(engine);
            (void)engine.step(0.1).report();
        });
    CHECK(seen.type == "CollectiveMismatch");
    CHECK(seen.freed >= freed_before + 2); // the buffers of the norms; those of the engine follow
    CHECK(seen.freed_too_early == 0);
}

} // namespace zero::test::pending_commands_test
