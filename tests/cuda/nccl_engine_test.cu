#include "cuda/kept_pool.hpp"
#include "cuda/nccl_engines.cuh"

#include <zero/cuda/nccl.cuh>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string_view>
#include <vector>

// Engines over the real NCCL: one rank on each device, or with NCCL 2.30 and
// NCCL_MULTI_RANK_GPU_ENABLE=1 several (2 and 4, or ZERO_RANKS_PER_DEVICE), which also need
// CUDA_DEVICE_MAX_CONNECTIONS=32 and CUDA_MODULE_LOADING=EAGER. emulated/nccl_engine_test.cu runs
// the same without a device.

namespace zero::test::nccl_engine_test {

namespace {

using namespace zero::test::nccl_engines; // NOLINT(google-build-using-namespace): its own model

using Communicator = cuda::NcclCommunicatorOn<MeetingBackend>;

std::vector<int> ranks_per_device() {
    char const* const allowed = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    int version = 0;
    if (allowed == nullptr || std::string_view(allowed) != "1"
        || ncclGetVersion(&version) != ncclSuccess || version < 23000) {
        return {1};
    }
    char const* const number = std::getenv("ZERO_RANKS_PER_DEVICE");
    return number == nullptr ? std::vector<int>{2, 4} : std::vector<int>{std::atoi(number)};
}

/// Calls `test(group)` for each number of ranks on a device.
template <class Test>
void with_groups(cuda::NcclOrder order, Test const& test) {
    if (skips_without_device()) {
        return;
    }
    int count = 0;
    cuda::detail::check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    for (int const on_device : ranks_per_device()) {
        std::vector<int> devices;
        for (int rank = 0; rank < count * on_device; ++rank) {
            devices.push_back(rank / on_device);
        }
        static std::map<int, Lanes> kept; // made before the streams of NCCL
        Lanes& lanes = kept[on_device];
        if (lanes.empty()) {
            lanes = make_lanes(devices);
            for (int device = 0; device < count; ++device) {
                prepare_pool(device);
            }
            cuda::detail::check(cudaSetDevice(0), "cudaSetDevice");
        }
        cuda::NcclOptions options{.time_out = std::chrono::seconds(15),
                                  .finish_time_out = std::chrono::seconds(3),
                                  .watch_interval = std::chrono::milliseconds(50),
                                  .order = order};
        if (on_device > 1) { // kernels that wait for one another must fit on the device together
            options.max_ctas = 4;
        }
        std::printf("%d devices, %d ranks on each: ", count, on_device);
        std::fflush(stdout);
        auto const start = std::chrono::steady_clock::now();
        Group<Communicator> group(lanes, Communicator::make_group(devices, options));
        connect(group);
        std::chrono::duration<double> const took = std::chrono::steady_clock::now() - start;
        std::printf("connected (%.2f s)\n", took.count());
        std::fflush(stdout);
        INFO(group.size() << " ranks");
        test(group);
    }
}

} // namespace

TEST_CASE("Over NCCL in rank order every stage has the bits of the loopback of the host",
          "[cuda]") {
    with_groups(cuda::NcclOrder::rank, [](Group<Communicator>& group) {
        check_toy<float>(group, "rank order");
        check_toy<bfloat16>(group, "rank order");
    });
}

TEST_CASE("Over NCCL in rank order micro-batches that are added in a tree have the bits of one "
          "rank on the host",
          "[cuda]") {
    with_groups(cuda::NcclOrder::rank, [](Group<Communicator>& group) {
        check_tree<float>(group, "rank order");
        check_tree<bfloat16>(group, "rank order");
    });
}

TEST_CASE("Over NCCL gradients in codes have the bits of the loopback of the host", "[cuda]") {
    with_groups(cuda::NcclOrder::library,
                [](Group<Communicator>& group) { check_codes<bfloat16>(group, "exchanged"); });
}

TEST_CASE("Over NCCL in its own order a stage repeats its bits, and two ranks have those of the "
          "loopback",
          "[cuda]") {
    with_groups(cuda::NcclOrder::library, [](Group<Communicator>& group) {
        check_library_order<float>(group);
        check_library_order<bfloat16>(group);
    });
}

TEST_CASE("Over NCCL in rank order states that the host updates have the bits of the loopback",
          "[cuda]") {
    with_groups(cuda::NcclOrder::rank, [](Group<Communicator>& group) {
        check_host_update<bfloat16>(group, "rank order");
    });
}

TEST_CASE("Over NCCL in rank order groups of two ranks have the bits of the loopback of the host",
          "[cuda]") {
    with_groups(cuda::NcclOrder::rank, [](Group<Communicator>& group) {
        if (group.size() % 2 == 0) {
            check_groups<float>(group, "rank order");
            check_groups<bfloat16>(group, "rank order");
        }
    });
}

TEST_CASE("Over NCCL in rank order engines have the bits of the loopback of the host if their "
          "buffers lie in one arena",
          "[cuda]") {
    with_groups(cuda::NcclOrder::rank, [](Group<Communicator>& group) {
        check_arena<float>(group, "rank order");
        check_arena<bfloat16>(group, "rank order");
    });
}

TEST_CASE("Over NCCL engines whose buffers lie in a symmetric window repeat their bits, and two "
          "ranks have those of the loopback",
          "[cuda]") {
    if (!cuda::linked_nccl().nccl->has_windows()) {
        return; // before NCCL 2.27
    }
    with_groups(cuda::NcclOrder::library, [](Group<Communicator>& group) {
        check_windows<float>(group);
        check_windows<bfloat16>(group);
    });
}

} // namespace zero::test::nccl_engine_test
