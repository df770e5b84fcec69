// Two ranks on one CUDA device train parameters that are in a vector of Thrust, with the gradients
// in another one. The engine adopts both: it copies neither.

#include <zero/cuda/backend.cuh>
#include <zero/cuda/span_of.hpp>
#include <zero/zero.hpp>

#include <thrust/copy.h>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/transform.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <vector>

using Communicator = zero::Loopback<zero::cuda::Backend>;
using Zero = zero::ZeroStage<2, zero::Sgd, Communicator>;

constexpr int ranks = 2;
constexpr std::size_t slopes = 1000, shifts = 24;

/// The gradient of half the squared difference.
struct Difference {
    __host__ __device__ float operator()(float value, float target) const { return value - target; }
};

int main() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::puts("skipped: no CUDA device");
        return 0;
    }
    std::vector<float> errors(ranks);
    zero::run_ranks<Communicator>(ranks, [&](Communicator& communicator) {
        float const own_target = communicator.rank() == 0 ? 2.0F : 4.0F;
        thrust::device_vector<float> values(slopes + shifts, 0.0F);
        thrust::device_vector<float> gradients(slopes + shifts, 0.0F);
        thrust::device_vector<float> const targets(slopes + shifts, own_target);
        zero::cuda::OwnedStream const stream;
        auto const block = zero::cuda::span_of(values);
        auto const gradient = zero::cuda::span_of(gradients);
        std::vector<Zero::Registration> const parameters{{.name = "slopes",
                                                          .data = block.data(),
                                                          .elements = slopes,
                                                          .units = {0},
                                                          .gradient = gradient.data()},
                                                         {.name = "shifts",
                                                          .data = block.data() + slopes,
                                                          .elements = shifts,
                                                          .units = {0},
                                                          .gradient = gradient.data() + slopes}};
        Zero engine(communicator, parameters,
                    {.storage = zero::Storage::adopted,
                     .adopted_block = block,
                     .optimizer = {.momentum = 0.0},
                     .compute_queue = stream.get()});
        for (int step = 0; step < 40; ++step) { // the host does not wait inside this loop
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(1)) {
                auto const weights = engine.acquire(0); // `values` are current from here on
                engine.begin_gradients(0, zero::GradientWrites::overwritten);
                thrust::transform(thrust::cuda::par_nosync.on(stream.get()), values.begin(),
                                  values.end(), targets.begin(), gradients.begin(), Difference());
                engine.gradients_ready(0);
            }
            engine.step(0.5);
        }
        (void)engine.last_report(); // waits, so that Thrust may read the values
        std::vector<float> on_host(values.size());
        thrust::copy(values.begin(), values.end(), on_host.begin());
        float& error = errors[static_cast<std::size_t>(communicator.rank())];
        for (float const value : on_host) { // the mean of the two targets
            error = std::max(error, std::fabs(value - 3.0F));
        }
    });
    bool is_fitted = true;
    for (float const error : errors) {
        std::printf("largest error %.6f\n", static_cast<double>(error));
        is_fitted = is_fitted && error < 1e-5F;
    }
    return is_fitted ? 0 : 1;
}
