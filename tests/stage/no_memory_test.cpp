#include "support/catch.hpp"
#include "support/gate.hpp"
#include "support/toy_model.hpp"

#include <zero/comm/run_ranks.hpp>
#include <zero/host/threaded_queue.hpp>
#include <zero/stage/zero_stage.hpp>

#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <vector>

// A construction in which any one allocation fails frees no memory that a command still writes to,
// and leaks nothing.

namespace zero::test::no_memory_test {

namespace {

/// Fails after a given number of allocations. Freed memory is kept, so that late writes to it are
/// detected.
class ScarceMemory final : public MemoryResource {
public:
    explicit ScarceMemory(std::size_t allowed) : _left(allowed) {}
    ScarceMemory(ScarceMemory const&) = delete;
    ScarceMemory& operator=(ScarceMemory const&) = delete;
    ~ScarceMemory() override {
        for (Freed const& block : _freed) {
            _memory.deallocate(block.bytes.data(), block.bytes.size(), block.kind);
        }
    }

    void* allocate(std::size_t bytes, BufferKind kind) override {
        if (_left == 0) {
            throw std::bad_alloc();
        }
        void* const memory = _memory.allocate(bytes, kind);
        --_left;
        ++live;
        _freed.reserve(_freed.size() + live);
        return memory;
    }

    void deallocate(void* memory, std::size_t bytes, BufferKind kind) noexcept override {
        --live;
        std::memset(memory, mark, bytes);
        _freed.push_back({{static_cast<unsigned char*>(memory), bytes}, kind});
    }

    /// Returns the number of blocks that were written to after they were freed.
    [[nodiscard]] std::size_t written_after() const {
        std::size_t blocks = 0;
        for (Freed const& block : _freed) {
            bool is_written = false;
            for (unsigned char const byte : block.bytes) {
                is_written = is_written || byte != mark;
            }
            blocks += is_written ? 1 : 0;
        }
        return blocks;
    }

    std::size_t live = 0;

private:
    static constexpr unsigned char mark = 0xa5;

    struct Freed {
        std::span<unsigned char> bytes;
        BufferKind kind;
    };

    std::size_t _left;
    HostMemoryResource _memory;
    std::vector<Freed> _freed;
};

/// Returns the number of allocations of one rank's construction, after making each of them fail
/// once.
template <class Stage>
std::size_t run_out_everywhere() {
    for (std::size_t allowed = 0;; ++allowed) {
        host::ThreadedQueue queue;
        ScarceMemory memory(allowed);
        bool is_enough = true;
        {
            Gate gate;
            gate.hold(queue);
            gate.open_by_another_thread();
            run_ranks<typename Stage::Communicator>(1, [&](auto& communicator) {
                typename Stage::Options options;
                options.communication_queue = &queue;
                options.memory = &memory;
                try {
                    Stage const engine(communicator,
                                       registration<typename Stage::ParameterType>(toy_specs()),
                                       options);
                } catch (std::bad_alloc const&) {
                    is_enough = false;
                }
            });
        }
        queue.synchronise();
        INFO("after " << allowed << " allocations");
        CHECK(memory.live == 0);
        CHECK(memory.written_after() == 0);
        if (is_enough) {
            return allowed;
        }
    }
}

} // namespace

TEST_CASE("When memory runs out during construction, nothing is freed under a pending command") {
    CHECK(run_out_everywhere<ZeroStage<2, Parameters<bfloat16>, AdamW>>() > 8);
    CHECK(run_out_everywhere<ZeroStage<1, Parameters<bfloat16>, AdamW, SplitMasterWeights,
                                       BlockScaledState<float16>>>()
          > 8);
    CHECK(run_out_everywhere<ZeroStage<3, Parameters<float>, AdamW>>() > 8);
}

} // namespace zero::test::no_memory_test
