#pragma once

#include "../view.hpp"
#include "memory.cuh"

#include <cublas_v2.h>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>

namespace gpt {

/// @brief The distances between the matrices of equal products, in elements.
struct Repeated {
    std::size_t count = 1;
    std::size_t left = 0;
    std::size_t right = 0;
    std::size_t result = 0;
};

/// @brief Products of row-major float matrices on one stream, by cuBLAS, with the same bits in
/// every run on the same kind of device.
///
/// cuBLAS may add in another order if several streams share a workspace, if atomic additions are
/// allowed, or if a matrix is less aligned. So each stream has a handle with its own workspace,
/// atomics are off, and the model keeps its matrices where `cudaMalloc` put them.
class Products {
public:
    /// @throws std::runtime_error
    explicit Products(cudaStream_t stream) : _workspace(stream, workspace_bytes) {
        check(cublasCreate(&_handle), "cublasCreate");
        check(cublasSetStream(_handle, stream),
              "cublasSetStream"); // takes a workspace away, so it comes first
        check(cublasSetWorkspace(_handle, _workspace.data(), workspace_bytes),
              "cublasSetWorkspace");
        check(cublasSetAtomicsMode(_handle, CUBLAS_ATOMICS_NOT_ALLOWED), "cublasSetAtomicsMode");
        check(cublasSetMathMode(_handle, CUBLAS_PEDANTIC_MATH),
              "cublasSetMathMode"); // float, not TF32
    }
    Products(Products&& other) noexcept
        : _workspace(std::move(other._workspace)), _handle(std::exchange(other._handle, nullptr)) {}
    Products& operator=(Products&&) = delete;
    ~Products() {
        if (_handle != nullptr) {
            static_cast<void>(cublasDestroy(_handle));
        }
    }

    /// @brief result = left * right
    void nn(View<float const> left, View<float const> right, View<float> result,
            Repeated const& repeated = {}) {
        multiply(left, CUBLAS_OP_N, right, CUBLAS_OP_N, left.columns, result, repeated);
    }

    /// @brief result = left * transpose(right)
    void nt(View<float const> left, View<float const> right, View<float> result,
            Repeated const& repeated = {}) {
        multiply(left, CUBLAS_OP_N, right, CUBLAS_OP_T, left.columns, result, repeated);
    }

    /// @brief result = transpose(left) * right
    void tn(View<float const> left, View<float const> right, View<float> result,
            Repeated const& repeated = {}) {
        multiply(left, CUBLAS_OP_T, right, CUBLAS_OP_N, left.rows, result, repeated);
    }

private:
    static constexpr std::size_t workspace_bytes =
        std::size_t{32} << 20U; // recommended by cuBLAS for the largest devices

    static void check(cublasStatus_t status, char const* what) {
        if (status != CUBLAS_STATUS_SUCCESS) {
            throw std::runtime_error(std::string("gpt: ") + what
                                     + " failed: " + cublasGetStatusString(status));
        }
    }

    /// A row-major matrix is its transpose in column-major order. So cuBLAS computes the transposed
    /// product, with the right factor first.
    void multiply(View<float const> left, cublasOperation_t left_operation, View<float const> right,
                  cublasOperation_t right_operation, std::size_t inner, View<float> result,
                  Repeated const& repeated) {
        float const one = 1.0F;
        float const zero = 0.0F;
        check(cublasSgemmStridedBatched(
                  _handle, right_operation, left_operation, static_cast<int>(result.columns),
                  static_cast<int>(result.rows), static_cast<int>(inner), &one, right.data,
                  static_cast<int>(right.stride), static_cast<long long>(repeated.right), left.data,
                  static_cast<int>(left.stride), static_cast<long long>(repeated.left), &zero,
                  result.data, static_cast<int>(result.stride),
                  static_cast<long long>(repeated.result), static_cast<int>(repeated.count)),
              "cublasSgemmStridedBatched");
    }

    CudaBuffer<unsigned char> _workspace;
    cublasHandle_t _handle = nullptr;
};

} // namespace gpt
