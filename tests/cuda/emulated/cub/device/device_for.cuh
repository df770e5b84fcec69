#pragma once

#include "../../cuda_runtime.h"

#include <cstddef>

namespace cub __attribute__((visibility("hidden"))) { // hidden like the operations that it takes

    /// Calls the operation with each index, in blocks of 512, within a block from the last to the
    /// first: callers must not rely on an order.
    struct DeviceFor {
        template <class Shape, class Operation>
        static cudaError_t Bulk(Shape shape, Operation operation, cudaStream_t stream = {}) {
            ++zero::test::emulated::kernels;
            cudaError_t const code = zero::test::emulated::enqueue(stream, [=] {
                constexpr Shape block = 512;
                for (Shape begin = 0; begin < shape; begin += block) {
                    for (Shape i = shape - begin < block ? shape - begin : block; i-- > 0;) {
                        operation(begin + i);
                    }
                }
            });
            return code != cudaSuccess ? code : cudaPeekAtLastError(); // as CUB does
        }
    };

} // namespace cub
