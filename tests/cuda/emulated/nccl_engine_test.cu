#include "cuda/nccl_engines.cuh"
#include "emulated_nccl.hpp"

#include <chrono>
#include <numeric>
#include <utility>
#include <vector>

// The tests of ../nccl_engine_test.cu over the fake NCCL, with a device for each rank.

namespace zero::test::nccl_engine_test {

namespace {

using namespace zero::test::nccl_engines; // NOLINT(google-build-using-namespace): its own model

using Communicator = FakeNcclCommunicator<cuda::NcclMode::blocking, MeetingBackend, EmulatedWorld>;

template <class Test>
void with_groups(FakeSums const& sums, Test const& test) {
    for (int const world : {1, 2, 4}) {
        FakeSumsScope const scope(sums);
        std::vector<int> devices(static_cast<std::size_t>(world));
        std::iota(devices.begin(), devices.end(), 0);
        Lanes const lanes = make_lanes(devices);
        auto ranks = Communicator::make_group(world, {.time_out = std::chrono::seconds(60)});
        auto const fakes = ranks.front().fakes;
        Group<Communicator> group(lanes, std::move(ranks));
        connect(group);
        test(group);
        CHECK(fakes->nccl.collisions == 0);
        CHECK(fakes->nccl.misplaced == 0);
        CHECK(fakes->nccl.allocations == 0);
    }
    cuda::detail::check(cudaSetDevice(0), "cudaSetDevice");
}

constexpr FakeSums rank_order{cuda::NcclOrder::rank, 4096, true};
constexpr FakeSums library_order{cuda::NcclOrder::library, 4096, true};

} // namespace

TEST_CASE("Over a fake NCCL in rank order engines have the bits of the loopback of the host, also "
          "with states that the host updates",
          "[cuda]") {
    with_groups(rank_order, [](Group<Communicator>& group) {
        check_toy<bfloat16>(group, "rank order");
        check_toy<float>(group, "rank order");
        check_host_update<bfloat16>(group, "rank order");
    });
}

TEST_CASE("Over a fake NCCL in rank order engines add in a tree as one rank on the host",
          "[cuda]") {
    with_groups(rank_order, [](Group<Communicator>& group) {
        check_tree<float>(group, "rank order");
        check_tree<bfloat16>(group, "rank order");
    });
}

TEST_CASE("Over a fake NCCL gradients in codes have the bits of the loopback of the host, in "
          "whatever order the library adds",
          "[cuda]") {
    for (FakeSums const& sums : {rank_order, library_order}) {
        with_groups(sums,
                    [](Group<Communicator>& group) { check_codes<bfloat16>(group, "exchanged"); });
    }
}

TEST_CASE("Over a fake NCCL in its own order a stage repeats its bits, and two ranks have those of "
          "the loopback",
          "[cuda]") {
    with_groups(library_order, [](Group<Communicator>& group) {
        check_library_order<float>(group);
        check_library_order<bfloat16>(group);
        using Stage = ZeroStage<2, Parameters<float>, Communicator>; // the order of a sum shows
        bool const is_equal =
            difference(toy_on_devices<Stage>(group), toy_on_host<float>(group.size())).empty();
        CHECK(is_equal == (group.size() <= 2));
    });
}

TEST_CASE("Over a fake NCCL in rank order groups of two ranks have the bits of the loopback of the "
          "host",
          "[cuda]") {
    with_groups(rank_order, [](Group<Communicator>& group) {
        if (group.size() % 2 == 0) {
            check_groups<float>(group, "rank order");
            check_groups<bfloat16>(group, "rank order");
        }
    });
}

TEST_CASE("Over a fake NCCL engines have the bits of the loopback of the host if their buffers lie "
          "in one arena, also in a symmetric window, at equal offsets",
          "[cuda]") {
    for (bool const symmetric : {false, true}) {
        with_groups(rank_order, [symmetric](Group<Communicator>& group) {
            check_arena<float>(group, "rank order", symmetric);
            check_arena<bfloat16>(group, "rank order", symmetric);
        });
    }
    with_groups(library_order, [](Group<Communicator>& group) {
        check_windows<float>(group);
        check_windows<bfloat16>(group);
    });
}

} // namespace zero::test::nccl_engine_test
