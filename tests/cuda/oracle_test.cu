#include "cuda/device.hpp"
#include "cuda/oracle_side.cuh"

#include <zero/comm/secondary.hpp>
#include <zero/stage/update_on_host.hpp>

// Random configurations of the engine on a device, with ranks as threads, against the oracle of the
// host's tests. The variables ZERO_ORACLE_... change them, as on the host.

namespace zero::test::oracle_test {

using namespace zero::test::oracle;

namespace {

using DeviceLoopback = Loopback<cuda::Backend>;
/// The oracle's model reads and writes managed memory on the host while kernels run.
bool skips_without_shared_memory() {
    if (skips_without_device()) {
        return true;
    }
    int device = 0;
    int is_concurrent = 0;
    cuda::detail::check(cudaGetDevice(&device), "cudaGetDevice");
    cuda::detail::check(
        cudaDeviceGetAttribute(&is_concurrent, cudaDevAttrConcurrentManagedAccess, device),
        "cudaDeviceGetAttribute");
    if (is_concurrent == 0) {
        std::puts("skipped: no CUDA device with concurrent access to managed memory");
        SUCCEED("skipped");
    }
    return is_concurrent == 0;
}

constexpr std::size_t part = 60; // percent of the host's configurations

} // namespace

TEST_CASE("Random configurations with split master weights and scaled states on a device give the "
          "bits of the oracle in every stage",
          "[cuda][oracle]") {
    if (skips_without_shared_memory()) {
        return;
    }
    run_row<24, DeviceLoopback>(part);
}

TEST_CASE("The oracle finds a wrong learning rate on a device", "[cuda][oracle]") {
    if (skips_without_shared_memory()) {
        return;
    }
    Configuration c;
    for (std::size_t index = 24; c.units != 3 || !c.injections.empty(); index += generated_rows) {
        c = make_configuration(20240229, index);
    }
    c.lists_groups = false; // so that no group has the factor 0
    c.changes.clear();
    History const history = compute_history(c);
    Failures right;
    run_stage<stage_t<2, 24, DeviceLoopback>>({&c, &history, 2, &right});
    CHECK(right.count() == 0);
    Failures wrong;
    run_stage<stage_t<2, 24, DeviceLoopback>>({&c, &history, 2, &wrong, 1.01});
    CHECK(wrong.count() != 0);
}

// nvcc takes half a minute per row. Without a device one row is enough; scripts/gpu_check.sh runs
// all, and so does the emulated device.
#if !defined(__NVCC__) || defined(ZERO_ALL_ORACLE_ROWS)

TEST_CASE("Random configurations with float16 dealt in turn and a dynamic scale on a device give "
          "the bits of the oracle in every stage",
          "[cuda][oracle]") {
    if (skips_without_shared_memory()) {
        return;
    }
    run_row<10, DeviceLoopback>(part);
}

TEST_CASE("Random configurations with stochastic rounding and bfloat16 states on a device give the "
          "bits of the oracle in every stage",
          "[cuda][oracle]") {
    if (skips_without_shared_memory()) {
        return;
    }
    run_row<21, DeviceLoopback>(part);
}

TEST_CASE("Random configurations whose states lie on the host, which updates them, give the bits "
          "of the oracle in every stage",
          "[cuda][oracle]") {
    if (skips_without_shared_memory()) {
        return;
    }
    using States = To<HostMemory, BufferKind::optimizer_state, BufferKind::master_weights>;
    run_row<25, DeviceLoopback, Offload<States>>(part); // two types, one is its own master
    run_row<22, DeviceLoopback, Offload<States, UpdateOnDevice>>(part);
}

TEST_CASE("Random configurations whose ranks share secondary copies on a device give the bits of "
          "the oracle in stage 3",
          "[cuda][oracle]") {
    if (skips_without_shared_memory()) {
        return;
    }
    run_row<10, Groups<DeviceLoopback, Secondary>>(part);
}

#endif

} // namespace zero::test::oracle_test
