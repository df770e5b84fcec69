#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/storage_types.hpp"

#include <torch/types.h>
#include <type_traits>

namespace ZERO_NAMESPACE::torch {

/// @brief LibTorch's name of a parameter type.
template <class T>
constexpr at::ScalarType scalar_type_of() noexcept {
    if constexpr (std::is_same_v<T, float>) {
        return at::kFloat;
    } else if constexpr (std::is_same_v<T, bfloat16>) {
        return at::kBFloat16;
    } else {
        static_assert(std::is_same_v<T, float16>, "zero: LibTorch has no such parameter type.");
        return at::kHalf;
    }
}

} // namespace ZERO_NAMESPACE::torch
