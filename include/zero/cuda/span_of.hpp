#pragma once

#include "../core/detail/namespace.hpp"

#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>

namespace ZERO_NAMESPACE::cuda {

/// @brief Returns the device memory of a vector of Thrust, such as `thrust::device_vector`, as the
/// pointers and spans that the library takes: values or gradients of a parameter, an adopted block.
///
/// The span is valid until the vector is resized, moved from or destroyed. The host must not read
/// through it. Includes nothing of Thrust; any vector whose `data()` has a `get()` that returns a
/// plain pointer will do. Values that Thrust writes on another stream must be complete: a
/// `device_vector` is filled when its constructor returns.
template <class Vector>
    requires requires(Vector& vector) {
        *vector.data().get();
        { vector.size() } -> std::convertible_to<std::size_t>;
    }
[[nodiscard]] auto span_of(Vector& vector) {
    auto* const data = vector.data().get();
    static_assert(std::is_pointer_v<std::remove_const_t<decltype(data)>>,
                  "zero: span_of: data().get() of the vector is not a plain pointer.");
    return std::span(data, static_cast<std::size_t>(vector.size()));
}

} // namespace ZERO_NAMESPACE::cuda
