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
