#pragma once

#include "../../cuda_runtime.h"
#include "../minimum.cuh"

namespace cub {

/// The result is valid in the first thread only; the others keep their value.
template <class T, int threads>
class BlockReduce {
public:
    struct TempStorage {
        T values[threads];
    };
    explicit BlockReduce(TempStorage& memory) : _memory(&memory) {}

    template <class Operation>
    T Reduce(T value, Operation operation) {
        _memory->values[threadIdx.x] = value;
        __syncthreads();
        for (int i = 1; threadIdx.x == 0 && i < threads; ++i) {
            value = operation(value, _memory->values[i]);
        }
        return value;
    }
    T Sum(T value) {
        return Reduce(value, [](T a, T b) { return a + b; });
    }

private:
    TempStorage* _memory;
};

} // namespace cub
