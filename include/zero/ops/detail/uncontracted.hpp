#pragma once

#include "../../core/detail/namespace.hpp"

#include <concepts>

namespace ZERO_NAMESPACE::ops::detail {

/// @brief Returns the product and prevents its contraction with a later sum.
///
/// Where the hardware has a fused multiply-add, GCC contracts across statements by default, and
/// clang with a flag. An empty assembly statement that "changes" the product ends the expression
/// and costs no instruction.
///
/// No macro says whether the hardware has one: functions with the `target` attribute, into which
/// this one is inlined, may use it in a unit that does not define `__FMA__`.
template <std::floating_point T>
inline T uncontracted(T product) noexcept {
#if defined(__GNUC__)
#if defined(__x86_64__)
    __asm__("" : "+x"(product));
#elif defined(__aarch64__)
    __asm__("" : "+w"(product));
#else
    __asm__("" : "+m"(product));
#endif
#endif
    return product;
}

/// @brief `uncontracted` for loops that are compiled for no other instructions than their unit.
/// Without a fused multiply-add the statement would only keep them from becoming vectors.
template <std::floating_point T>
inline T uncontracted_in_unit(T product) noexcept {
#if defined(__x86_64__) && !defined(__FMA__) && !defined(__FMA4__)
    return product;
#else
    return uncontracted(product);
#endif
}

} // namespace ZERO_NAMESPACE::ops::detail
