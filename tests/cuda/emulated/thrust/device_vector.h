#pragma once

// Stands for thrust::device_vector on the emulated device: the members that tests and examples
// use.

#include "cuda_runtime_api.h"

#include <algorithm>
#include <cstddef>

namespace thrust {

template <class T>
class device_ptr {
public:
    explicit device_ptr(T* pointer) : _pointer(pointer) {}
    T* get() const { return _pointer; }

private:
    T* _pointer;
};

template <class T>
class device_vector {
public:
    device_vector(std::size_t elements, T value) : _size(elements) {
        void* memory = nullptr;
        cudaMalloc(&memory, elements * sizeof(T));
        _data = static_cast<T*>(memory);
        std::fill_n(_data, elements, value);
    }
    device_vector(device_vector const&) = delete;
    device_vector& operator=(device_vector const&) = delete;
    ~device_vector() { cudaFree(_data); }

    std::size_t size() const { return _size; }
    T* begin() { return _data; }
    T* end() { return _data + _size; }
    T const* begin() const { return _data; }
    T const* end() const { return _data + _size; }
    device_ptr<T> data() { return device_ptr<T>(_data); }
    device_ptr<T const> data() const { return device_ptr<T const>(_data); }

private:
    T* _data = nullptr;
    std::size_t _size;
};

} // namespace thrust
