#include "cuda/captured_steps.cuh"
#include "cuda/fake_communicator.hpp"

#include "support/stages.hpp"

#include <zero/cuda/linked_system.hpp>

#include <vector>

// Steps over NCCL as graphs, one per rank. The real NCCL needs a device per rank; kernels of the
// fake are nodes that wait for their peers in every replay.

namespace zero::test::nccl_graph_test {

namespace {

class EmulatedNccl : public FakeNccl {
    void enqueue(Stream stream, void (*body)(void*), void* kernel) override {
        cuda::detail::check(cudaLaunchHostFunc(static_cast<cudaStream_t>(stream), body, kernel),
                            "cudaLaunchHostFunc");
    }
};

struct EmulatedWorld {
    EmulatedNccl nccl;
    cuda::LinkedSystem system; // the real one
};

template <class Stage>
std::vector<CapturedResult> run(int world, bool captures) {
    std::vector<CapturedResult> ranks(static_cast<std::size_t>(world));
    run_nccl_ranks<typename Stage::Communicator>(world, [&](auto& communicator) {
        cuda::detail::check(cudaSetDevice(communicator.rank()), "cudaSetDevice");
        GroupGraph graph(1); // each rank has its own
        ranks[static_cast<std::size_t>(communicator.rank())] =
            run_captured_steps<Stage>(communicator, captures ? &graph : nullptr, 0);
    });
    return ranks;
}

template <cuda::NcclMode mode>
void check_mode() {
    in_every_stage([]<int N>() {
        using OverNccl = ZeroStage<N, Parameters<float16>,
                                   FakeNcclCommunicator<mode, cuda::Backend, EmulatedWorld>>;
        using OnLoopback = ZeroStage<N, Parameters<float16>, Loopback<cuda::Backend>>;
        for (int const world : {2, 3}) {
            CAPTURE(N, world);
            auto const captured = run<OverNccl>(world, true);
            CHECK(captured == run<OverNccl>(world, false));
            CHECK(
                captured
                == on_ranks<CapturedResult, Loopback<cuda::Backend>>(world, [](auto& communicator) {
                       return run_captured_steps<OnLoopback>(communicator, nullptr, 0);
                   }));
            CHECK(captured[0].was_skipped);
            CHECK(captured[0].step_count == 4);
        }
    });
}

} // namespace

TEST_CASE("A replayed step over NCCL gives the bits of eager steps and of the loopback", "[cuda]") {
    check_mode<cuda::NcclMode::non_blocking>();
}

TEST_CASE("A replayed step over a blocking NCCL gives the bits of eager steps", "[cuda]") {
    check_mode<cuda::NcclMode::blocking>();
}

} // namespace zero::test::nccl_graph_test
