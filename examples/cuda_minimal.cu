// Four ranks on one CUDA device fit a sine with a small network in bfloat16, under stage 2.

#include <zero/cuda/backend.cuh>
#include <zero/zero.hpp>

#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <vector>

using Number = zero::bfloat16; // has the bits of a __nv_bfloat16
// Ranks are threads on one device; use zero::cuda::NcclCommunicator for one device per rank.
using Communicator = zero::Loopback<zero::cuda::Backend>;
using Zero = zero::ZeroStage<2, zero::Parameters<Number>, Communicator>;

constexpr int ranks = 4, width = 64;

void check(cudaError_t code) {
    if (code != cudaSuccess) throw std::runtime_error(cudaGetErrorString(code));
}

__device__ float hidden(Number const* slopes, Number const* shifts, float x) {
    return tanhf(zero::to_float(slopes[threadIdx.x]) * x + zero::to_float(shifts[threadIdx.x]));
}

__device__ void add(Number& gradient, float value) {
    gradient = zero::from_float<Number>(zero::to_float(gradient) + value);
}

/// `difference` belongs to the last sample, `error` is smoothed over all samples.
__global__ void second_layer(Number const* slopes, Number const* shifts, Number const* output,
                             Number* gradient, float const* scale, float x, float* difference,
                             float* error) {
    __shared__ float products[width];
    float const value = hidden(slopes, shifts, x);
    products[threadIdx.x] = value * zero::to_float(output[threadIdx.x]);
    __syncthreads();
    float sum = -sinf(x);
    for (float const product : products) sum += product;
    add(gradient[threadIdx.x], *scale * sum * value);
    if (threadIdx.x == 0) {
        *difference = sum;
        *error += 0.01F * (fabsf(sum) - *error);
    }
}

__global__ void first_layer(Number const* slopes, Number const* shifts, Number const* output,
                            Number* slope_gradient, Number* shift_gradient, float const* scale,
                            float x, float const* difference) {
    float const value = hidden(slopes, shifts, x);
    float const inner =
        *scale * *difference * zero::to_float(output[threadIdx.x]) * (1.0F - value * value);
    add(slope_gradient[threadIdx.x], inner * x);
    add(shift_gradient[threadIdx.x], inner);
}

int main() {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::puts("skipped: no CUDA device");
        return 0;
    }
    std::vector<float> errors(ranks);
    zero::run_ranks<Communicator>(ranks, [&](Communicator& communicator) {
        zero::cuda::OwnedStream const stream; // or any stream that outlives the engine
        float* scalars = nullptr;             // difference and error, on the device
        check(cudaMalloc(&scalars, 2 * sizeof(float)));
        check(cudaMemsetAsync(scalars, 0, 2 * sizeof(float), stream.get()));
        std::vector<Number> slopes;
        for (int i = 1; i <= width; ++i)
            slopes.push_back(zero::from_float<Number>(std::sin(static_cast<float>(i))));
        std::vector<Zero::Registration> const parameters{
            // initial values on the host or on the device; zeros if not given
            {.name = "slopes", .initial = slopes.data(), .elements = width, .units = {0}},
            {.name = "shifts", .elements = width, .units = {0}},
            {.name = "output", .elements = width, .units = {1}}};
        Zero engine(communicator, parameters,
                    {.gradient_clipping = 1.0F, .compute_queue = stream.get()});
        for (int step = 0; step < 1000; ++step) { // the host does not wait inside this loop
            engine.begin_step();
            for (auto const micro_step : engine.micro_steps(2)) {
                float const x =
                    3.0F
                    * std::sin(static_cast<float>(step * 8 + static_cast<int>(micro_step) * 4
                                                  + communicator.rank()));
                auto const first = engine.acquire(0); // first[i] is parameter i, in device memory
                auto const second = engine.acquire(1);
                second_layer<<<1, width, 0, stream.get()>>>(
                    first[0].data(), first[1].data(), second[2].data(),
                    engine.gradients(1)[2].data(), engine.loss_scale().data(), x, scalars,
                    scalars + 1);
                engine.gradients_ready(1);
                auto const gradients = engine.gradients(0);
                first_layer<<<1, width, 0, stream.get()>>>(
                    first[0].data(), first[1].data(), second[2].data(), gradients[0].data(),
                    gradients[1].data(), engine.loss_scale().data(), x, scalars);
                engine.gradients_ready(0);
            }
            engine.step(0.02 * (1.0 - step / 1000.0)); // only enqueued; .report() would wait
        }
        float& error = errors[static_cast<std::size_t>(communicator.rank())];
        check(cudaMemcpyAsync(&error, scalars + 1, sizeof(float), cudaMemcpyDeviceToHost,
                              stream.get()));
        check(cudaStreamSynchronize(stream.get()));
        check(cudaFree(scalars));
    });
    bool is_fitted = true;
    for (float const error : errors) {
        std::printf("mean error %.3f\n", static_cast<double>(error));
        is_fitted = is_fitted && error < 0.05F;
    }
    return is_fitted ? 0 : 1;
}
