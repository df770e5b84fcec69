#include "cuda/captured_steps.cuh"

#include "support/ranks.hpp"
#include "support/stages.hpp"

#include <zero/cuda/nccl.cuh>

#include <exception>
#include <numeric>
#include <thread>
#include <vector>

// Steps over the real NCCL as graphs: one rank per device, each with its own graph.
// emulated/nccl_graph_test.cu has several ranks without a device.

namespace zero::test::linked_nccl_graph_test {

namespace {

template <class Stage>
std::vector<CapturedResult> run(bool captures) {
    int count = 0;
    cuda::detail::check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    std::vector<int> devices(static_cast<std::size_t>(count));
    std::iota(devices.begin(), devices.end(), 0);
    auto group = cuda::NcclCommunicator::make_group(devices, {.time_out = test_time_out.time_out});
    std::vector<CapturedResult> results(group.size());
    std::vector<std::exception_ptr> failures(group.size());
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < group.size(); ++rank) {
        threads.emplace_back([&, rank] {
            try {
                cuda::detail::check(cudaSetDevice(devices[rank]), "cudaSetDevice");
                GroupGraph graph(1); // each rank has its own
                results[rank] =
                    run_captured_steps<Stage>(group[rank], captures ? &graph : nullptr, 0);
                group[rank].synchronise();
            } catch (...) {
                failures[rank] = std::current_exception();
                group[rank].abort("a rank failed");
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    for (std::exception_ptr const& failure : failures) {
        if (failure) {
            std::rethrow_exception(failure);
        }
    }
    return results;
}

} // namespace

TEST_CASE("A replayed step over NCCL gives the bits of eager steps, on all devices of the machine",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    in_every_stage([&]<int N>() {
        using Stage = ZeroStage<N, Parameters<float16>, SizeCappedBucketer, cuda::NcclCommunicator>;
        auto const captured = run<Stage>(true);
        CHECK(captured == run<Stage>(false));
        for (CapturedResult const& rank : captured) {
            CHECK(rank.step_count == 4);
            CHECK(rank.was_skipped);
        }
    });
}

} // namespace zero::test::linked_nccl_graph_test
