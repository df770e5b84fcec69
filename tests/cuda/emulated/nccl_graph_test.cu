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

TEST_CASE("Where ranks share a process, a step begins when the step before the last one has ended, "
          "and engines in processes of their own do not wait",
          "[cuda]") {
    constexpr auto mode = cuda::NcclMode::non_blocking;
    using Stage = ZeroStage<2, Parameters<bfloat16>,
                            FakeNcclCommunicator<mode, cuda::Backend, EmulatedWorld>>;
    using Waits = std::vector<std::size_t>;
    auto const waits_of = [](int world) {
        std::vector<Waits> ranks(static_cast<std::size_t>(world));
        run_nccl_ranks<Stage::Communicator>(world, [&](auto& communicator) {
            cuda::detail::check(cudaSetDevice(communicator.rank()), "cudaSetDevice");
            cuda::OwnedStream const stream;
            Stage::Options options;
            options.compute_queue = stream.get();
            Stage engine(communicator, registration<bfloat16>(toy_specs()), options);
            auto const rank = static_cast<std::size_t>(communicator.rank());
            std::vector<decltype(engine.step(0.01))> tickets;
            for (std::uint64_t step = 0; step < 6; ++step) {
                std::size_t const before = emulated::waits;
                engine.begin_step();
                ranks[rank].push_back(emulated::waits - before);
                if (world > 1 && (step == 2 || step == 3)) {
                    ranks[rank].back() += tickets[step - 2].done().is_complete() ? 0 : 100;
                }
                for (auto const micro_step : engine.micro_steps(1)) {
                    run_device_micro_step(engine, stream.get(), rank, step, micro_step, 4);
                }
                tickets.push_back(engine.step(0.01));
                if (step == 3) {
                    engine.join(); // forgets every event, as a capture needs
                }
            }
        });
        return ranks;
    };
    CHECK(waits_of(1)[0] == Waits{0, 0, 0, 0, 0, 0});
    for (Waits const& waits : waits_of(2)) {
        CHECK(waits == Waits{0, 0, 1, 1, 0, 0});
    }
}

} // namespace zero::test::nccl_graph_test
