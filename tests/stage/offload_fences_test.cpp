// Each fence of offloaded states is needed: without it, or with staging slots that share memory,
// requests that pause give other bits. The races are deliberate, so the cases do not run under the
// thread sanitizer.

#include "support/catch.hpp"
#include "support/leaky_backend.hpp"
#include "support/sanitizers.hpp"

#include "offload_model.hpp"

#include <zero/comm/loopback.hpp>
#include <zero/core/host_memory_resource.hpp>
#include <zero/host/host_backend.hpp>
#include <zero/zero.hpp>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <vector>

namespace zero::test::offload_fences_test {

namespace {

/// May say that a chunk needs fewer bytes than it moves, so that neighbouring slots share some.
struct CrowdedTier : FileTier {
    using FileTier::FileTier;
    inline static std::atomic<bool> is_crowded{false};

    [[nodiscard]] std::size_t staging_bytes(std::size_t chunk) const noexcept {
        return is_crowded ? alignment() : FileTier::staging_bytes(chunk);
    }
};

/// Has room behind the last slot.
class RoomyMemory final : public MemoryResource {
public:
    void* allocate(std::size_t bytes, BufferKind kind) override {
        return _host.allocate(bytes + room, kind);
    }
    void deallocate(void* memory, std::size_t bytes, BufferKind kind) noexcept override {
        _host.deallocate(memory, bytes + room, kind);
    }

private:
    static constexpr std::size_t room = 4096;
    HostMemoryResource _host;
};

template <int N, class... Policies>
using Leaky = ZeroStage<N, Parameters<bfloat16>, Loopback<LeakyBackend>, Policies...>;
using Both = Offload<To<CrowdedTier, BufferKind::optimizer_state, BufferKind::master_weights>>;
using All = Offload<To<CrowdedTier, BufferKind::optimizer_state, BufferKind::master_weights,
                       BufferKind::parameters>>;

/// Returns whether a run with states in a file has other bits than one in memory, or fails.
template <int N, class States = Both>
bool differs(int missing, std::vector<Trained> const& expected, std::uint64_t seed) {
    DelayedFiles files(seed, 400);
    TemporaryFolder const folder;
    RoomyMemory memory;
    LeakyBackend::missing = missing;
    bool is_different = false;
    try {
        auto const found = history<Leaky<N, States>>(
            2,
            {.offload = {.path = folder.path(), .chunk_bytes = 1500, .depth = 2, .calls = &files},
             .memory = &memory},
            {});
        is_different = !(found == expected);
    } catch (std::exception const&) { // the checksum of a chunk may find it first
        is_different = true;
    }
    LeakyBackend::missing = -1;
    return is_different;
}

template <int N, class States = Both>
void require_fences(std::vector<Fence> const& needed) {
    auto const expected = history<Leaky<N>>(2, {}, {});
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
        CHECK_FALSE((differs<N, States>(-1, expected, seed)));
    }
    for (Fence const fence : needed) {
        INFO("stage " << N << " without the fence " << name_of(fence));
        std::uint64_t seed = 0;
        while (seed < 60 && !differs<N, States>(static_cast<int>(fence), expected, seed)) {
            ++seed;
        }
        CHECK(seed < 60);
    }
}

} // namespace

TEST_CASE("Staging slots that share memory are found") {
    if (has_thread_sanitizer) {
        std::puts("skipped: no thread sanitizer, which reports the deliberate races itself");
        return;
    }
    auto const expected = history<Leaky<2>>(2, {}, {});
    CrowdedTier::is_crowded = true;
    std::uint64_t seed = 0;
    while (seed < 60 && !differs<2>(-1, expected, seed)) {
        ++seed;
    }
    CrowdedTier::is_crowded = false;
    CHECK(seed < 60);
    CHECK_FALSE(differs<2>(-1, expected, seed));
}

TEST_CASE("A run without one of the fences of a chunk is found") {
    if (has_thread_sanitizer) {
        std::puts("skipped: no thread sanitizer, which reports the deliberate races itself");
        return;
    }
    std::vector<Fence> const of_states{Fence::chunk_read, Fence::chunk_updated,
                                       Fence::chunk_written};
    require_fences<0>(of_states);
    require_fences<1>(of_states);
    require_fences<2>(of_states);
    require_fences<3>(of_states);
    require_fences<3, All>(
        {Fence::chunk_read, Fence::chunk_updated, Fence::chunk_written, Fence::chunk_copied});
}

} // namespace zero::test::offload_fences_test
