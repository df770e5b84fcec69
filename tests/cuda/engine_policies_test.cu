#include "cuda/device_model.cuh"

#include <zero/ops/lion.hpp>
#include <zero/ops/sgd.hpp>

// Policies that change what the kernels of a step do, on a device: the bits that the host's engine leaves.

using namespace zero;
using namespace zero::test;

namespace {

template <int N, class... Policies>
using DeviceStage = ZeroStage<N, Policies..., Loopback<cuda::Backend>>;

template <class... Policies, class Configure>
void compare(Configure const& configure) {
    typename ZeroStage<2, Policies...>::Options host_options;
    configure(host_options);
    Trained const expected = trained<ZeroStage<2, Policies...>>(3, host_options, 6);
    typename DeviceStage<2, Policies...>::Options options;
    configure(options);
    CHECK(trained_on_device<DeviceStage<2, Policies...>>(3, options, 6) == expected);
    typename DeviceStage<0, Policies...>::Options replicated;
    configure(replicated);
    CHECK(trained_on_device<DeviceStage<0, Policies...>>(3, replicated, 6) == expected);
}

} // namespace

TEST_CASE("float16 with a loss scale that overflows at first: steps that a device skips are those of the host", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    compare<Parameters<float16>, Sgd>([](auto& options) {
        options.loss_scaler.initial_scale = 1048576.0F; // gradients are up to 1
        options.loss_scaler.hysteresis = 1;
        options.loss_scaler.growth_interval = 1;
        options.loss_scaler.maximum = 1048576.0F;
    });
}

TEST_CASE("Master weights in parts and states with scales: a device leaves the bits of the host", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    compare<Parameters<bfloat16>, SplitMasterWeights, BlockScaledState<float16>, Lion>([](auto& options) { options.gradient_clipping = 1.0F; });
}

TEST_CASE("Stochastic rounding: a device draws the numbers of the host", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    compare<Parameters<bfloat16>, StochasticRounding, RoundRobinPartitioner>([](auto& options) { options.master_weights.seed = 42; });
}
