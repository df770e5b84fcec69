#pragma once

#include "../../core/detail/namespace.hpp"

#include <concepts>

namespace ZERO_NAMESPACE::ops::detail {

/// @brief Returns the product and prevents its contraction with a later sum.
///
/// Where the hardware has a fused multiply-add, GCC contracts across statements by default, and
/// clang with a flag. An empty assembly statement that "changes" the product ends the expression
/// and costs no instruction.
template <std::floating_point T>
inline T uncontracted(T product) noexcept {
#if defined(__GNUC__)
#if defined(__FMA__) || defined(__FMA4__)
    __asm__("" : "+x"(product));
#elif defined(__aarch64__)
    __asm__("" : "+w"(product));
#elif !defined(__x86_64__)
    __asm__("" : "+m"(product));
#endif
#endif
    return product;
}

} // namespace ZERO_NAMESPACE::ops::detail
