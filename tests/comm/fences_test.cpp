// Each fence of the loopback is needed: without it, slow queues give wrong sums. The races are
// deliberate, so the test does not run under the thread sanitizer.

#include "support/sanitizers.hpp"

#include "report.hpp"
#include "values.hpp"

#include <zero/comm/detail/run_threads.hpp>
#include <zero/comm/run_ranks.hpp>
#include <zero/host/delaying_queue.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

namespace zero::test::fences_test {

namespace {

constexpr int fence_of_none = -1;

/// Omits the fences of one kind.
struct LeakyBackend : HostBackend {
    inline static std::atomic<int> missing{fence_of_none};

    static void wait(Queue queue, Event const& event, Fence fence) {
        if (static_cast<int>(fence) != missing) {
            HostBackend::wait(queue, event, fence);
        }
    }
};
using LeakyLoopback = Loopback<LeakyBackend>;

/// Runs all-reduces on delaying queues. Memory outlives all ranks, so a missing fence gives wrong
/// results instead of a crash. Returns the number of wrong results.
int wrong_results(int missing) {
    constexpr int world = 4;
    constexpr std::size_t rounds = 60;
    auto const cuts = cuts_of({40, 30, 20, 10});
    std::vector<std::vector<float>> memory(world, std::vector<float>(cuts.back()));
    std::vector<std::vector<float>> results(world, std::vector<float>(cuts.back() * rounds));
    std::atomic<int> wrong{0};
    LeakyBackend::missing = missing;
    run_ranks<LeakyLoopback>(
        world, {.time_out = std::chrono::seconds(60)}, [&](LeakyLoopback& communicator) {
            auto const rank = static_cast<std::size_t>(communicator.rank());
            float* const values = memory[rank].data();
            std::size_t const total = cuts.back();
            host::DelayingQueue queue(rank, 100);
            for (std::size_t round = 0; round < rounds; ++round) {
                queue.enqueue([=] {
                    for (std::size_t i = 0; i < total; ++i) {
                        values[i] = value_of<float>(static_cast<int>(rank), i, round);
                    }
                });
                communicator.all_reduce(static_cast<float const*>(values), values, cuts, &queue,
                                        {"sums", round});
                queue.enqueue([=, out = results[rank].data() + round * total] {
                    std::copy_n(values, total, out);
                });
                queue.enqueue([=] { std::memset(values, 0xff, total * sizeof(float)); });
            }
            queue.synchronise();
            for (std::size_t round = 0; round < rounds; ++round) {
                auto const begin =
                    results[rank].begin() + static_cast<std::ptrdiff_t>(round * total);
                wrong += equal_bits(
                             std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(total)),
                             sums_of<float>(world, 0, total, round))
                             ? 0
                             : 1;
            }
        });
    LeakyBackend::missing = fence_of_none;
    return wrong;
}

} // namespace

TEST_CASE("Each fence of the loopback is needed") {
    if (has_thread_sanitizer) {
        std::puts("skipped: no thread sanitizer, which reports the deliberate races itself");
        return;
    }
    CHECK(wrong_results(fence_of_none) == 0);
    CHECK(wrong_results(static_cast<int>(Fence::peers_ready)) > 0);
    CHECK(wrong_results(static_cast<int>(Fence::peers_reduced)) > 0);
    CHECK(wrong_results(static_cast<int>(Fence::peers_done)) > 0);
}

} // namespace zero::test::fences_test
