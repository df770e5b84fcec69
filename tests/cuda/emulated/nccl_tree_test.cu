#include "cuda/device_tree.cuh"
#include "emulated_nccl.hpp"

#include "support/catch.hpp"
#include "support/outcome.hpp"
#include "support/stages.hpp"

#include <zero/comm/hierarchical.hpp>
#include <zero/cuda/backend.cuh>
#include <zero/zero.hpp>

#include <cstddef>
#include <string>
#include <vector>

// TreeReduction over an NCCL that adds in its own order: in rank order the pieces are exchanged,
// and the device adds them in the tree.

namespace zero::test::nccl_tree_test {

namespace {

using namespace zero::test::tree; // NOLINT(google-build-using-namespace): one test's model

template <class Stage>
std::vector<Seen> train_over_nccl(int world, Job const& job) {
    std::vector<std::vector<Seen>> ranks(static_cast<std::size_t>(world));
    run_nccl_ranks<typename Stage::Communicator>(world, [&](auto& communicator) {
        cuda::detail::check(cudaSetDevice(communicator.rank()), "cudaSetDevice");
        ranks[static_cast<std::size_t>(communicator.rank())] =
            train_on_device<Stage>(communicator, {}, job);
    });
    return joined(ranks);
}

} // namespace

TEMPLATE_TEST_CASE("Over NCCL in rank order, micro-batches that are added in a tree have the bits "
                   "of one rank on the host, in every stage",
                   "[cuda]", float, bfloat16) {
    Job const job{.steps = 2};
    auto const expected = train<ZeroStage<2, Parameters<TestType>, TreeReduction<>>>(1, {}, job);
    in_every_stage([&]<int N>() {
        using Stage =
            ZeroStage<N, Parameters<TestType>, TreeReduction<>,
                      FakeNcclCommunicator<cuda::NcclMode::blocking, cuda::Backend, EmulatedWorld>>;
        for (int const world : {1, 2, 4}) {
            CAPTURE(N, world);
            // reductions take several rounds
            std::size_t const scratch = static_cast<std::size_t>(world) * 1024;
            FakeSumsScope const sums({cuda::NcclOrder::rank, scratch, true});
            CHECK(train_over_nccl<Stage>(world, job) == expected);
        }
    });
}

TEST_CASE("Two levels of NCCL add in the tree in rank order, and refuse in NCCL's own", "[cuda]") {
    using Nccl = FakeNcclCommunicator<cuda::NcclMode::blocking, cuda::Backend, EmulatedWorld>;
    using Levels = Hierarchical<Nccl, Nccl>;
    using Stage = ZeroStage<2, Parameters<bfloat16>, TreeReduction<>, Levels>;
    Job const job{.steps = 2};
    auto const train_in_levels = [&](Job const& of_levels) {
        std::vector<std::vector<Seen>> ranks(4);
        run_nccl_ranks<Nccl>(4, [&](Nccl& all) {
            cuda::detail::check(cudaSetDevice(all.rank()), "cudaSetDevice");
            auto inside = all.split(all.rank() / 2, all.rank());
            auto between = all.split(all.rank() % 2, all.rank());
            Levels levels(inside, between, {.scratch_bytes = 512});
            ranks[static_cast<std::size_t>(levels.rank())] =
                train_on_device<Stage>(levels, {}, of_levels);
            (void)sum_over_ranks(all, 1); // no rank leaves while others are in its parts
        });
        return joined(ranks);
    };
    {
        FakeSumsScope const sums({cuda::NcclOrder::rank, 4096, true});
        CHECK(train_in_levels(job)
              == train<ZeroStage<2, Parameters<bfloat16>, TreeReduction<>>>(1, {}, job));
    }
    auto const refused = outcome_of([&] { (void)train_in_levels(job); });
    CHECK(refused.message.find("cannot add in a tree: NCCL adds in an order of its own")
          != std::string::npos);
}

} // namespace zero::test::nccl_tree_test
