#pragma once

#include "../../core/detail/namespace.hpp"

#include <concepts>

namespace ZERO_NAMESPACE::ops::detail {

/// @brief Returns the product and prevents its contraction with a later sum.
///
/// Where the hardware has a fused multiply-add, GCC contracts across statements by default, and
/// clang does with a flag. An empty assembly statement that "changes" the product ends the
/// expression and costs no instruction.
///
/// No macro says whether the hardware has a fused multiply-add. This function is inlined into
/// functions with the `target` attribute, which may use one in a translation unit that does not
/// define `__FMA__`.
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

/// @brief `uncontracted` for loops that use only the instruction set of their translation unit.
/// Without a fused multiply-add the statement would only prevent their vectorisation.
template <std::floating_point T>
inline T uncontracted_in_unit(T product) noexcept {
#if defined(__x86_64__) && !defined(__FMA__) && !defined(__FMA4__)
    return product;
#else
    return uncontracted(product);
#endif
}

} // namespace ZERO_NAMESPACE::ops::detail
