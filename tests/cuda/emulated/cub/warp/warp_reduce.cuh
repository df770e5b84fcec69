#pragma once

#include "../../cuda_runtime.h"
#include "../minimum.cuh"

namespace cub {

/// The results are valid in the first thread only; those of the others are spoilt, so that a kernel
/// that reads them fails.
template <class T>
class WarpReduce {
public:
    struct TempStorage {};
    explicit WarpReduce(TempStorage&) {}

    template <class Operation>
    T Reduce(T value, Operation operation) {
        for (unsigned step = 1; step < 32; step *= 2) {
            unsigned const lane = threadIdx.x % 32;
            T const other = __shfl_sync(0xffffffffU, value, (lane + step) % 32);
            value = lane + step < 32 ? operation(value, other) : value;
        }
        return threadIdx.x % 32 == 0 ? value : T(0x5a5a5a5a);
    }

    T Sum(T value) {
        return Reduce(value, [](T a, T b) { return static_cast<T>(a + b); });
    }
};

} // namespace cub
