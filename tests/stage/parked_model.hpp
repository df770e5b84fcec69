#pragma once

// Engines whose states leave memory between two steps.

#include "offload_model.hpp"
#include "state_model.hpp"
#include "support/catch.hpp"
#include "support/temporary_folder.hpp"

#include <zero/core/host_memory_resource.hpp>
#include <zero/stage/offload_states.hpp>
#include <zero/zero.hpp>

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <limits>
#include <new>
#include <optional>
#include <vector>

namespace zero::test::parked_model {

using state_model::Bits;
using state_model::state_of;
using Kinds = std::vector<BufferKind>;
using Half = ZeroStage<2, Parameters<bfloat16>>;

inline Kinds const all_kinds{BufferKind::parameters,      BufferKind::gradients,
                             BufferKind::master_weights,  BufferKind::optimizer_state,
                             BufferKind::gradient_leases, BufferKind::parameter_leases,
                             BufferKind::held_sums};
inline Kinds const update_kinds{BufferKind::master_weights, BufferKind::optimizer_state};

/// Returns layers of some pages each, whose groups alternate.
inline std::vector<ParameterSpec> layers() {
    return {{"a", 9'000, {0}, 0}, {"b", 7'001, {1}, 1}, {"c", 5'000, {1}, 0}, {"d", 41, {2}, 1}};
}

inline std::size_t resident(HostMemoryResource const& memory, Kinds const& kinds = all_kinds) {
    std::size_t bytes = 0;
    for (BufferKind const kind : kinds) {
        bytes += memory.resident_bytes(kind);
    }
    return bytes;
}

inline std::size_t page_bytes() {
    return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();

/// A resource that refuses: to keep addresses at all, to give back a kind, or to take it again.
class RefusingMemory final : public MemoryResource {
public:
    HostMemoryResource host;
    bool can = true;
    std::optional<BufferKind> keeps{};
    std::optional<BufferKind> withholds{};
    std::size_t staging = no_limit; ///< most bytes for it
    std::atomic<int> given_back{0}; ///< calls
    std::atomic<int> foreign{0};    ///< calls for what it did not allocate

    void* allocate(std::size_t bytes, BufferKind kind) override {
        if (kind == BufferKind::staging && bytes > staging) {
            throw std::bad_alloc();
        }
        return host.allocate(bytes, kind);
    }
    void deallocate(void* memory, std::size_t bytes, BufferKind kind) noexcept override {
        host.deallocate(memory, bytes, kind);
    }
    [[nodiscard]] bool can_give_back_pages() const noexcept override { return can; }
    [[nodiscard]] bool give_back_pages(void* memory, std::size_t bytes,
                                       BufferKind kind) noexcept override {
        ++given_back;
        foreign += memory == nullptr || bytes == 0 ? 1 : 0;
        return keeps != kind && host.give_back_pages(memory, bytes, kind);
    }
    void take_pages_again(void* memory, std::size_t bytes, BufferKind kind) override {
        if (withholds == kind) {
            throw std::bad_alloc();
        }
        host.take_pages_again(memory, bytes, kind);
    }
};

/// One rank's engine whose requests a test sees, with a step done.
struct Alone {
    explicit Alone(LoopbackCommunicator& communicator)
        : engine(communicator, registration<bfloat16>(layers()), engine_options()) {
        (void)run_step(engine, 0, 0);
    }

    [[nodiscard]] Half::Options engine_options() {
        Half::Options options;
        options.memory = &memory;
        options.groups = {{}, {}};
        return options;
    }

    [[nodiscard]] OffloadStatesOptions options() {
        return {.path = folder.path(), .chunk_bytes = 4096, .calls = &files};
    }

    TemporaryFolder folder;
    DelayedFiles files{1};
    RefusingMemory memory;
    Half engine;
    std::size_t all_bytes = resident(memory.host);
};

/// Calls `body(Alone&)` and returns what it threw; checks that the engine then goes on as one that
/// never parked.
template <class Body>
Outcome with_one_rank(Body const& body) {
    auto const outcomes = run_and_observe(1, [&](LoopbackCommunicator& communicator) {
        Alone parked(communicator);
        Alone expected(communicator);
        body(parked);
        (void)run_step(parked.engine, 0, 1);
        (void)run_step(expected.engine, 0, 1);
        CHECK((state_of(parked.engine) == state_of(expected.engine)));
    });
    return outcomes.ranks[0];
}

} // namespace zero::test::parked_model
