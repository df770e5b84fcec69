#include "cuda/captured_steps.cuh"
#include "emulated_nccl.hpp"

#include "comm/values.hpp"
#include "support/stages.hpp"

#include <vector>

// Steps over NCCL as graphs, one per rank. The real NCCL needs a device per rank; kernels of the
// fake are nodes that wait for their peers in every replay.

namespace zero::test::nccl_graph_test {

namespace {

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

/// Returns what a rank receives, for even and uneven cuts: its pieces, its sums, and its
/// sums in a tree.
template <class Communicator>
std::vector<float> exchanged(Communicator& communicator, cudaStream_t stream) {
    auto const rank = static_cast<std::size_t>(communicator.rank());
    auto const world = static_cast<std::size_t>(communicator.size());
    std::vector<float> results;
    auto families = families_of_cuts(world);
    families.push_back(cuts_of(std::vector<std::size_t>(world, 700))); // several rounds
    for (auto const& cuts : families) {
        std::size_t const own = cuts[rank + 1] - cuts[rank];
        DeviceArray<float> const send(values_of<float>(communicator.rank(), cuts.back(), 1));
        DeviceArray<float> const pieces(std::vector<float>(own * world + 1));
        DeviceArray<float> const sums(std::vector<float>(own + 1));
        float const* const source = send.data();
        communicator.exchange(source, pieces.data(), cuts, stream, {"pieces", 0});
        communicator.reduce_scatter(source, sums.data(), cuts, stream, {"sums", 0});
        DeviceArray<float> const trees(std::vector<float>(own + 1));
        DeviceArray<float> const held(values_of<float>(communicator.rank(), 2 * own, 2));
        ops::TreeSum<float> const tree{trees.data(),
                                       {held.data(), held.data() + own, own, 2, world}};
        communicator.reduce_scatter(source, tree, cuts, stream, {"in a tree", 0});
        cuda::detail::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        for (DeviceArray<float> const* const array : {&pieces, &sums, &trees}) {
            auto const read = on_host(*array);
            results.insert(results.end(), read.begin(), read.end());
        }
    }
    return results;
}

TEMPLATE_TEST_CASE(
    "Over an NCCL that adds in its own order, steps in rank order have the bits of the loopback in "
    "every stage, eager and replayed, and steps in NCCL's order have others",
    "[cuda]", float, bfloat16, float16) {
    constexpr int world = 4; // three of these gradients of float have one sum in any order
    in_every_stage([]<int N>() {
        CAPTURE(N);
        using Types = ZeroStage<N, Parameters<TestType>, DynamicLossScaler>;
        using OverNccl = typename Types::template with<
            FakeNcclCommunicator<cuda::NcclMode::blocking, cuda::Backend, EmulatedWorld>>;
        using OnLoopback = typename Types::template with<Loopback<cuda::Backend>>;
        auto const expected =
            on_ranks<CapturedResult, Loopback<cuda::Backend>>(world, [](auto& communicator) {
                return run_captured_steps<OnLoopback>(communicator, nullptr, 0);
            });
        {
            // reductions take several rounds
            FakeSumsScope const sums({cuda::NcclOrder::rank, world * 1024, true});
            CHECK(run<OverNccl>(world, false) == expected);
            CHECK(run<OverNccl>(world, true) == expected);
        }
        FakeSumsScope const sums({.adds_backwards = true});
        CHECK_FALSE(run<OverNccl>(world, false) == expected);
    });
}

TEST_CASE(
    "A replayed step whose micro-batches are added in a tree has the bits of eager steps, and "
    "of the loopback, in every stage",
    "[cuda]") {
    constexpr int world = 2;
    in_every_stage([]<int N>() {
        CAPTURE(N);
        using Types = ZeroStage<N, Parameters<float16>, TreeReduction<>, DynamicLossScaler>;
        using OverNccl = typename Types::template with<
            FakeNcclCommunicator<cuda::NcclMode::blocking, cuda::Backend, EmulatedWorld>>;
        using OnLoopback = typename Types::template with<Loopback<cuda::Backend>>;
        FakeSumsScope const sums({cuda::NcclOrder::rank, world * 1024, true});
        auto const captured = run<OverNccl>(world, true);
        CHECK(captured == run<OverNccl>(world, false));
        CHECK(captured
              == on_ranks<CapturedResult, Loopback<cuda::Backend>>(world, [](auto& communicator) {
                     return run_captured_steps<OnLoopback>(communicator, nullptr, 0);
                 }));
        CHECK(captured[0].was_skipped);
    });
}

TEST_CASE("An exchange and sums in rank order and in a tree over NCCL on devices are those of the "
          "loopback",
          "[cuda]") {
    using Communicator =
        FakeNcclCommunicator<cuda::NcclMode::non_blocking, cuda::Backend, EmulatedWorld>;
    FakeSumsScope const sums({cuda::NcclOrder::rank, 1, true});
    for (int const world : {1, 2, 4}) {
        CAPTURE(world);
        std::vector<std::vector<float>> found(static_cast<std::size_t>(world));
        run_nccl_ranks<Communicator>(world, [&](Communicator& communicator) {
            cuda::detail::check(cudaSetDevice(communicator.rank()), "cudaSetDevice");
            cuda::OwnedStream const stream;
            found[static_cast<std::size_t>(communicator.rank())] =
                exchanged(communicator, stream.get());
        });
        CHECK(
            found
            == on_ranks<std::vector<float>, Loopback<cuda::Backend>>(world, [](auto& communicator) {
                   cuda::OwnedStream const stream;
                   return exchanged(communicator, stream.get());
               }));
    }
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
