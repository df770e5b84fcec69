#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/storage_types.hpp"
#include "host_device.hpp"

#include <cstdint>
#include <type_traits>

namespace ZERO_NAMESPACE::ops {

/// @brief Returns whether x is 0 or -0. It reads the bits, so that no flag makes a subnormal number
/// equal 0.
template <StorageType T>
[[nodiscard]] ZERO_HOST_DEVICE constexpr bool is_zero(T x) noexcept {
    if constexpr (std::is_same_v<T, float>) {
        return (__builtin_bit_cast(std::uint32_t, x) & 0x7fffffffU) == 0;
    } else {
        return (x.bits & 0x7fffU) == 0;
    }
}

} // namespace ZERO_NAMESPACE::ops
