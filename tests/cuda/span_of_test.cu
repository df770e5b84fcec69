#include "cuda/device_model.cuh"

#include <zero/cuda/span_of.hpp>
#include <zero/ops/sgd.hpp>

#include <thrust/device_vector.h>

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

// The parameters and gradients of the caller are vectors of Thrust.

namespace zero::test::span_of_test {

namespace {

using Vector = thrust::device_vector<float>;
static_assert(std::is_same_v<decltype(cuda::span_of(std::declval<Vector&>())), std::span<float>>);
static_assert(
    std::is_same_v<decltype(cuda::span_of(std::declval<Vector const&>())), std::span<float const>>);

constexpr std::size_t elements = 1000;

} // namespace

TEST_CASE("A stage trains parameters and gradients that lie in vectors of Thrust", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    using Stage = ZeroStage<2, Sgd, Loopback<cuda::Backend>>;
    auto const ranks =
        on_ranks<std::vector<float>, Stage::Communicator>(2, [&](auto& communicator) {
            Vector values(elements, 3.0F);
            Vector gradients(elements, 0.5F);
            cuda::OwnedStream const stream;
            Stage::Options options;
            options.storage = Storage::scattered;
            options.compute_queue = stream.get();
            options.optimizer = {.momentum = 0.0};
            std::vector<Stage::Registration> const parameters{
                {.name = "weight",
                 .data = cuda::span_of(values).data(),
                 .elements = values.size(),
                 .units = {0},
                 .gradient = cuda::span_of(gradients).data()}};
            Stage engine(communicator, parameters, options);
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(1)) {
                auto const weights = engine.acquire(0);
                engine.begin_gradients(0, zero::GradientWrites::overwritten);
                engine.gradients_ready(0);
            }
            (void)engine.step(1.0);
            (void)engine.step_count();
            std::vector<float> on_host(elements);
            cuda::detail::check(cudaMemcpy(on_host.data(), cuda::span_of(values).data(),
                                           elements * sizeof(float), cudaMemcpyDeviceToHost),
                                "cudaMemcpy");
            return on_host;
        });
    for (auto const& rank : ranks) {
        CHECK(rank == std::vector<float>(elements, 2.5F));
    }
}

} // namespace zero::test::span_of_test
