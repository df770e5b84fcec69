#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/host_device.hpp"
#include "../core/storage_types.hpp"

#include <concepts>
#include <cstdint>
#include <type_traits>

namespace ZERO_NAMESPACE::ops {

/// @brief A number that holds several floats side by side. The operations of `ops/arithmetic.hpp`
/// are its static members.
template <class F>
concept Pack = requires(F const& x, typename F::Mask const& mask) {
    typename F::Mask;
    F(0.0F);
    { F::fma(x, x, x) } -> std::same_as<F>;
    { F::mul(x, x) } -> std::same_as<F>;
    { F::add(x, x) } -> std::same_as<F>;
    { F::sub(x, x) } -> std::same_as<F>;
    { F::div(x, x) } -> std::same_as<F>;
    { F::root(x) } -> std::same_as<F>;
    { F::less(x, x) } -> std::same_as<typename F::Mask>;
    { F::less_equal(x, x) } -> std::same_as<typename F::Mask>;
    { F::select(mask, x, x) } -> std::same_as<F>;
};

/// @brief The number type of an optimizer functor: `float`, or a pack of floats.
///
/// A functor may copy and assign numbers, construct one from a `float`, and call the functions of
/// `ops/arithmetic.hpp`. Nothing else is available.
template <class F>
concept Number = std::same_as<F, float> || Pack<F>;

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
