#pragma once

#include "../view.hpp"
#include "check.cuh"

#include <zero/core/memory_resource.hpp>
#include <zero/cuda/allocator_memory.hpp>

#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <utility>

namespace gpt {

/// @brief Owns device memory of the model, set to zero in the order of a stream. Created and
/// destroyed outside of steps.
template <class T>
class CudaBuffer {
public:
    CudaBuffer() = default;
    CudaBuffer(cudaStream_t stream, std::size_t elements) : _elements(elements) {
        if (elements != 0) {
            check_cuda(cudaMalloc(reinterpret_cast<void**>(&_data), elements * sizeof(T)),
                       "cudaMalloc");
            check_cuda(cudaMemsetAsync(_data, 0, elements * sizeof(T), stream), "cudaMemsetAsync");
        }
    }
    CudaBuffer(CudaBuffer&& other) noexcept
        : _data(std::exchange(other._data, nullptr)), _elements(std::exchange(other._elements, 0)) {
    }
    CudaBuffer& operator=(CudaBuffer&& other) noexcept {
        std::swap(_data, other._data);
        std::swap(_elements, other._elements);
        return *this;
    }
    ~CudaBuffer() { static_cast<void>(cudaFree(_data)); }

    static constexpr std::size_t alignment = 256; ///< alignment that cudaMalloc guarantees

    T* data() noexcept { return _data; }
    T const* data() const noexcept { return _data; }
    std::size_t size() const noexcept { return _elements; }

private:
    T* _data = nullptr;
    std::size_t _elements = 0;
};

/// @brief A row-major matrix in device memory.
class CudaMatrix {
public:
    CudaMatrix() = default;
    CudaMatrix(cudaStream_t stream, std::size_t rows, std::size_t columns)
        : _buffer(stream, rows * columns), _rows(rows), _columns(columns) {}

    operator View<float>() noexcept {
        return {_buffer.data(), _rows, _columns, _columns};
    } // NOLINT
    operator View<float const>() const noexcept {
        return {_buffer.data(), _rows, _columns, _columns};
    } // NOLINT
    View<float> view() noexcept { return *this; }
    View<float const> view() const noexcept { return *this; }

private:
    CudaBuffer<float> _buffer;
    std::size_t _rows = 0;
    std::size_t _columns = 0;
};

/// @brief An engine's memory resource that counts the bytes of each kind.
class CountedCudaMemory final : public zero::MemoryResource {
public:
    [[nodiscard]] void* allocate(std::size_t bytes, zero::BufferKind kind) override {
        void* const memory = zero::cuda::default_memory().allocate(bytes, kind);
        _allocated[static_cast<std::size_t>(kind)] += bytes;
        return memory;
    }
    void deallocate(void* memory, std::size_t bytes, zero::BufferKind kind) noexcept override {
        zero::cuda::default_memory().deallocate(memory, bytes, kind);
        _allocated[static_cast<std::size_t>(kind)] -= bytes;
    }
    [[nodiscard]] std::size_t allocated_bytes(zero::BufferKind kind) const noexcept {
        return _allocated[static_cast<std::size_t>(kind)];
    }

private:
    std::array<std::atomic<std::size_t>, zero::buffer_kinds> _allocated{};
};

} // namespace gpt
