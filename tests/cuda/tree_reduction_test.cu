#include "device_tree.cuh"

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/stages.hpp"

#include <zero/comm/hierarchical.hpp>
#include <zero/comm/loopback.hpp>
#include <zero/cuda/backend.cuh>
#include <zero/zero.hpp>

#include <cstddef>
#include <vector>

// TreeReduction over the loopback of a device: the bits of one rank on the host.

namespace zero::test::tree_reduction_device_test {

namespace {

using namespace zero::test::tree; // NOLINT(google-build-using-namespace): one test's model

using DeviceLoopback = Loopback<cuda::Backend>;

/// Compares a stage on devices with one rank of stage 2 on the host.
template <int N, class... Policies>
void check_worlds(Job const& job, std::vector<int> const& worlds) {
    using OnHost = ZeroStage<2, Policies..., TreeReduction<>>;
    using OnDevice = ZeroStage<N, Policies..., SizeCappedBucketer, TreeReduction<>, DeviceLoopback>;
    auto const expected = train<OnHost>(1, {}, job);
    CHECK(expected.back().steps == job.steps - (job.overflows ? 1 : 0));
    for (int const world : worlds) {
        INFO("V = " << job.micro_batches << ", b = " << job.group << ", W = " << world << ", stage "
                    << N);
        typename OnDevice::Options options;
        options.poison = N % 2 == 1;
        options.reduction.wire_bytes = 1000;
        auto const found = joined(
            on_ranks<std::vector<Seen>, DeviceLoopback>(world, [&](DeviceLoopback& communicator) {
                return train_on_device<OnDevice>(communicator, options, job);
            }));
        CHECK(found == expected);
    }
}

} // namespace

TEST_CASE("Micro-batches that are added in a tree on a device have the bits of one rank on the "
          "host, in every stage",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    Job const job{.steps = 2};
    in_every_stage([&]<int N>() {
        check_worlds<N>(job, {1, 2, 4});
        check_worlds<N, Parameters<bfloat16>>(job, {1, 2, 4});
    });
}

TEST_CASE("A tree on a device may have groups, be uneven, and have one leaf", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    check_worlds<1, Parameters<bfloat16>>({.micro_batches = 12, .group = 3, .steps = 1}, {3, 6});
    check_worlds<3, Parameters<bfloat16>>({.micro_batches = 14, .steps = 1}, {1, 2});
    check_worlds<2, Parameters<bfloat16>>({.micro_batches = 1, .steps = 1}, {1});
}

TEST_CASE("Two levels on a device add in the tree, in several collectives between them", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    using Levels = Hierarchical<DeviceLoopback, DeviceLoopback>;
    Job const job{.steps = 2};
    auto const expected = train<ZeroStage<2, Parameters<bfloat16>, TreeReduction<>>>(1, {}, job);
    in_every_stage([&]<int N>() {
        using OnDevice =
            ZeroStage<N, Parameters<bfloat16>, SizeCappedBucketer, TreeReduction<>, Levels>;
        auto const found =
            joined(on_ranks<std::vector<Seen>, DeviceLoopback>(4, [&](DeviceLoopback& all) {
                DeviceLoopback inside = all.split(all.rank() / 2, all.rank());
                DeviceLoopback between = all.split(all.rank() % 2, all.rank());
                Levels communicator(inside, between, {.scratch_bytes = 512});
                return train_on_device<OnDevice>(communicator, {}, job);
            }));
        CAPTURE(N);
        CHECK(found == expected);
    });
}

TEST_CASE("A micro-batch that overflows on a device skips the step of every rank", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    check_worlds<2, Parameters<float16>, DynamicLossScaler>({.steps = 2, .overflows = 1}, {1, 4});
}

} // namespace zero::test::tree_reduction_device_test
