#pragma once

#include "../gelu.hpp"
#include "../storage.hpp"
#include "../text.hpp"
#include "check.cuh"

#include <zero/policy/parameters.hpp>

#include <cuda_runtime.h>

#include <cmath>
#include <cstddef>
#include <cstdint>

// The kernels of the model. Each sum is formed in an order that depends on the shape alone: each
// thread adds its terms in turn, then a tree adds the threads. There are no atomic additions, so
// training is reproducible bit for bit.

namespace gpt::kernels {

inline constexpr unsigned threads = 128;

/// @brief Enqueues a kernel with `threads` threads per block. @throws std::runtime_error
template <class... Parameters, class... Arguments>
void launch(cudaStream_t stream, std::size_t blocks, void (*kernel)(Parameters...),
            Arguments const&... arguments) {
    if (blocks != 0) {
        cudaLaunchConfig_t config{};
        config.gridDim = dim3(static_cast<unsigned>(blocks));
        config.blockDim = dim3(threads);
        config.stream = stream;
        check_cuda(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...),
                   "cudaLaunchKernelEx");
    }
}

/// @brief Enqueues a kernel of one thread per element.
template <class... Parameters, class... Arguments>
void launch_elements(cudaStream_t stream, std::size_t elements,
                     void (*kernel)(std::size_t, Parameters...), Arguments const&... arguments) {
    launch(stream, (elements + threads - 1) / threads, kernel, elements, arguments...);
}

struct Exponential {
    __host__ __device__ float operator()(float value) const { return std::exp(value); }
};
struct Sum {
    template <class T>
    __host__ __device__ T operator()(T a, T b) const {
        return a + b;
    }
};
struct Maximum {
    __host__ __device__ float operator()(float a, float b) const { return a < b ? b : a; }
};

inline __device__ std::size_t element_index() {
    return blockIdx.x * std::size_t{threads} + threadIdx.x;
}

/// @brief Combines the values of all threads of the block in a tree; every thread gets the result.
template <class Combine, class T>
__device__ T combine_block(T value, Combine const& combine) {
    __shared__ T values[threads];
    __syncthreads(); // all threads have read the previous result
    values[threadIdx.x] = value;
    for (unsigned half = threads / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            values[threadIdx.x] = combine(values[threadIdx.x], values[threadIdx.x + half]);
        }
    }
    __syncthreads();
    return values[0];
}

/// @brief Returns the sum of term(0) ... term(count - 1) in every thread.
template <class Term>
__device__ float sum_of(std::size_t count, Term const& term) {
    float sum = 0.0F;
    for (std::size_t index = threadIdx.x; index < count; index += threads) {
        sum += term(index);
    }
    return combine_block(sum, Sum{});
}

/// @brief Turns `count` scores (at least 1) into probabilities in place. @return log(sum of
/// e^score)
__device__ inline float softmax(float* values, std::size_t count, float scale) {
    float own = values[0] * scale;
    for (std::size_t index = threadIdx.x; index < count; index += threads) {
        own = Maximum{}(own, values[index] * scale);
    }
    float const maximum = combine_block(own, Maximum{});
    float sum = 0.0F;
    for (std::size_t index = threadIdx.x; index < count; index += threads) {
        values[index] = Exponential{}(values[index] * scale - maximum);
        sum += values[index];
    }
    sum = combine_block(sum, Sum{});
    float const inverse_sum = 1.0F / sum;
    for (std::size_t index = threadIdx.x; index < count; index += threads) {
        values[index] *= inverse_sum;
    }
    return maximum + std::log(sum);
}

// --- One thread per element. ---

template <class Stored>
__global__ void load(std::size_t elements, float* to, Stored const* from) {
    std::size_t const index = element_index();
    if (index < elements) {
        to[index] = widen<float>(from[index]);
    }
}

template <class Stored>
__global__ void add_to(std::size_t elements, Stored* to, float const* from) {
    std::size_t const index = element_index();
    if (index < elements) {
        to[index] = narrow<Stored>(widen<float>(to[index]) + from[index]);
    }
}

static __global__ void add(std::size_t elements, float const* left, float const* right,
                           float* result) {
    std::size_t const index = element_index();
    if (index < elements) {
        result[index] = left[index] + right[index];
    }
}

static __global__ void add_bias(std::size_t elements, float const* bias, std::size_t columns,
                                float* result) {
    std::size_t const index = element_index();
    if (index < elements) {
        result[index] += bias[index % columns];
    }
}

static __global__ void gelu_forward(std::size_t elements, float const* x, float* result) {
    std::size_t const index = element_index();
    if (index < elements) {
        result[index] = gelu<float>(x[index], Exponential{});
    }
}

static __global__ void gelu_backward(std::size_t elements, float const* x, float* gradient) {
    std::size_t const index = element_index();
    if (index < elements) {
        gradient[index] *= gelu_derivative<float>(x[index], Exponential{});
    }
}

static __global__ void embed(std::size_t elements, std::uint8_t const* tokens, float const* token,
                             float const* position, std::size_t context, std::size_t columns,
                             float* result) {
    std::size_t const index = element_index();
    if (index < elements) {
        std::size_t const row = index / columns;
        std::size_t const column = index % columns;
        result[index] =
            token[tokens[row] * columns + column] + position[row % context * columns + column];
    }
}

static __global__ void cross_entropy_backward(std::size_t elements, std::uint8_t const* targets,
                                              std::size_t columns, float const* scale,
                                              float* probabilities) {
    std::size_t const index = element_index();
    if (index < elements) {
        float const factor = *scale / static_cast<float>(elements / columns);
        float const one = index % columns == targets[index / columns] ? 1.0F : 0.0F;
        probabilities[index] = (probabilities[index] - one) * factor;
    }
}

static __global__ void fill_batch(std::size_t elements, std::uint8_t const* text,
                                  SamplePositions positions, std::size_t context,
                                  std::uint8_t* tokens, std::uint8_t* targets) {
    std::size_t const index = element_index();
    if (index < elements) {
        std::size_t const place = positions(index / context) + index % context;
        tokens[index] = text[place];
        targets[index] = text[place + 1];
    }
}

// --- One block per row. ---

static __global__ void norm_forward(float const* x, float const* weight, float const* bias,
                                    std::size_t columns, float* normalised,
                                    float* inverse_deviation, float* result) {
    std::size_t const first = blockIdx.x * columns;
    float const inverse_width = 1.0F / static_cast<float>(columns);
    float const mean = inverse_width * sum_of(columns, [=](std::size_t i) { return x[first + i]; });
    float const variance = inverse_width * sum_of(columns, [=](std::size_t i) {
                               return (x[first + i] - mean) * (x[first + i] - mean);
                           });
    float const inverse = 1.0F / std::sqrt(variance + 1e-5F);
    for (std::size_t i = threadIdx.x; i < columns; i += threads) {
        float const value = (x[first + i] - mean) * inverse;
        normalised[first + i] = value;
        result[first + i] = value * weight[i] + bias[i];
    }
    if (threadIdx.x == 0) {
        inverse_deviation[blockIdx.x] = inverse;
    }
}

static __global__ void norm_backward(float const* d_result, float const* weight,
                                     float const* normalised, float const* inverse_deviation,
                                     std::size_t columns, float* d_x) {
    std::size_t const first = blockIdx.x * columns;
    float const inverse_width = 1.0F / static_cast<float>(columns);
    float const mean = inverse_width * sum_of(columns, [=](std::size_t i) {
                           return d_result[first + i] * weight[i];
                       });
    float const slope = inverse_width * sum_of(columns, [=](std::size_t i) {
                            return d_result[first + i] * weight[i] * normalised[first + i];
                        });
    float const inverse = inverse_deviation[blockIdx.x];
    for (std::size_t i = threadIdx.x; i < columns; i += threads) {
        d_x[first + i] +=
            (d_result[first + i] * weight[i] - mean - normalised[first + i] * slope) * inverse;
    }
}

/// Computes a row of scores of one head: a token does not see later tokens.
static __global__ void attention_forward(float* scores, std::size_t context, float scale) {
    float* const row = scores + blockIdx.x * context;
    std::size_t const visible = blockIdx.x % context + 1;
    softmax(row, visible, scale);
    for (std::size_t i = visible + threadIdx.x; i < context; i += threads) {
        row[i] = 0.0F;
    }
}

static __global__ void attention_backward(float const* probabilities, float* gradients,
                                          std::size_t context, float scale) {
    float const* const probability = probabilities + blockIdx.x * context;
    float* const gradient = gradients + blockIdx.x * context;
    std::size_t const visible = blockIdx.x % context + 1;
    float const mean = sum_of(visible, [=](std::size_t i) { return probability[i] * gradient[i]; });
    for (std::size_t i = threadIdx.x; i < context; i += threads) {
        gradient[i] = i < visible ? probability[i] * (gradient[i] - mean) * scale : 0.0F;
    }
}

static __global__ void cross_entropy(float* logits, std::uint8_t const* targets,
                                     std::size_t columns, float* losses) {
    float* const row = logits + blockIdx.x * columns;
    float const target = row[targets[blockIdx.x]];
    float const normaliser = softmax(row, columns, 1.0F);
    if (threadIdx.x == 0) {
        losses[blockIdx.x] = normaliser - target;
    }
}

// --- One block for other sums. ---

/// Adds the mean of the losses to a sum.
static __global__ void add_mean(float const* losses, std::size_t rows, double* sum) {
    double own = 0.0;
    for (std::size_t row = threadIdx.x; row < rows; row += threads) {
        own += static_cast<double>(losses[row]);
    }
    double const all = combine_block(own, Sum{});
    if (threadIdx.x == 0) {
        *sum += all / static_cast<double>(rows);
    }
}

inline constexpr unsigned columns_per_block = 32;

/// Sums some columns over the rows of `values`, times `factors` unless they are null.
static __global__ void column_sums(float const* values, float const* factors, std::size_t rows,
                                   std::size_t columns, float* sums) {
    constexpr unsigned lanes = threads / columns_per_block;
    __shared__ float partial[threads];
    std::size_t const column = blockIdx.x * columns_per_block + threadIdx.x % columns_per_block;
    float sum = 0.0F;
    for (std::size_t row = threadIdx.x / columns_per_block; column < columns && row < rows;
         row += lanes) {
        float const value = values[row * columns + column];
        sum += factors == nullptr ? value : value * factors[row * columns + column];
    }
    partial[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x < columns_per_block && column < columns) {
        for (unsigned lane = 1; lane < lanes; ++lane) {
            sum += partial[lane * columns_per_block + threadIdx.x];
        }
        sums[column] = sum;
    }
}

/// Each block takes one token and adds the gradients of its positions in order.
static __global__ void embed_backward_tokens(std::uint8_t const* tokens, float const* d_result,
                                             std::size_t rows, std::size_t columns,
                                             float* d_token) {
    for (std::size_t column = threadIdx.x; column < columns; column += threads) {
        float sum = 0.0F;
        for (std::size_t row = 0; row < rows; ++row) {
            sum += tokens[row] == blockIdx.x ? d_result[row * columns + column] : 0.0F;
        }
        d_token[blockIdx.x * columns + column] = sum;
    }
}

/// Each block takes one position and adds the gradients of all samples there.
static __global__ void embed_backward_positions(float const* d_result, std::size_t rows,
                                                std::size_t context, std::size_t columns,
                                                float* d_position) {
    for (std::size_t column = threadIdx.x; column < columns; column += threads) {
        float sum = 0.0F;
        for (std::size_t row = blockIdx.x; row < rows; row += context) {
            sum += d_result[row * columns + column];
        }
        d_position[blockIdx.x * columns + column] = sum;
    }
}

} // namespace gpt::kernels
