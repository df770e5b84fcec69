#pragma once

namespace cuda {

template <class T = void>
struct minimum;

template <>
struct minimum<void> {
    template <class T>
    T operator()(T a, T b) const {
        return b < a ? b : a;
    }
};

} // namespace cuda

namespace cub {

using Min = cuda::minimum<>; // its name before CCCL 3.0

} // namespace cub
