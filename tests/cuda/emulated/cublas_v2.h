#pragma once

// The few functions of cuBLAS that the training example calls, on the emulated device: plain loops,
// enqueued like a kernel.

#include "cuda_runtime_api.h"

#include <cstddef>

enum cublasStatus_t { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_INVALID_VALUE = 7 };
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T };
enum cublasMath_t { CUBLAS_PEDANTIC_MATH = 2 };
enum cublasAtomicsMode_t { CUBLAS_ATOMICS_NOT_ALLOWED = 0 };

struct cublasContext {
    cudaStream_t stream = nullptr;
};
using cublasHandle_t = cublasContext*;

inline char const* cublasGetStatusString(cublasStatus_t) {
    return "an error of the emulated device";
}
inline cublasStatus_t cublasCreate(cublasHandle_t* handle) {
    *handle = new cublasContext;
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasDestroy(cublasHandle_t handle) {
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
    handle->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetWorkspace(cublasHandle_t, void*, std::size_t) {
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetAtomicsMode(cublasHandle_t, cublasAtomicsMode_t) {
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) {
    return CUBLAS_STATUS_SUCCESS;
}

/// C = alpha op(A) op(B) + beta C, column by column, `count` times.
inline cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle,
                                                cublasOperation_t a_operation,
                                                cublasOperation_t b_operation, int m, int n, int k,
                                                float const* alpha, float const* a, int a_rows,
                                                long long a_stride, float const* b, int b_rows,
                                                long long b_stride, float const* beta, float* c,
                                                int c_rows, long long c_stride, int count) {
    bool const is_wide_enough = a_rows >= (a_operation == CUBLAS_OP_N ? m : k)
                                && b_rows >= (b_operation == CUBLAS_OP_N ? k : n) && c_rows >= m;
    if (m < 0 || n < 0 || k < 0 || count < 0 || !is_wide_enough) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    zero::test::emulated::enqueue(handle->stream, [=, alpha = *alpha, beta = *beta] {
        for (int i = 0; i < count; ++i) {
            float const* const left = a + i * a_stride;
            float const* const right = b + i * b_stride;
            float* const result = c + i * c_stride;
            for (std::ptrdiff_t column = 0; column < n; ++column) {
                for (std::ptrdiff_t row = 0; row < m; ++row) {
                    float sum = 0.0F;
                    for (std::ptrdiff_t inner = 0; inner < k; ++inner) {
                        sum += (a_operation == CUBLAS_OP_N ? left[inner * a_rows + row]
                                                           : left[row * a_rows + inner])
                               * (b_operation == CUBLAS_OP_N ? right[column * b_rows + inner]
                                                             : right[inner * b_rows + column]);
                    }
                    float& to = result[column * c_rows + row];
                    to =
                        alpha * sum + (beta == 0.0F ? 0.0F : beta * to); // the old value may be NaN
                }
            }
        }
    });
    return CUBLAS_STATUS_SUCCESS;
}
