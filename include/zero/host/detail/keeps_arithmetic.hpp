#pragma once

#include "../../core/detail/namespace.hpp"

namespace ZERO_NAMESPACE::host::detail {

/// Returns whether the translation unit that contains the call was compiled to compute expressions
/// as written.
///
/// clang 14 defines no macro for -funsafe-math-optimizations and its parts -fassociative-math,
/// -freciprocal-math and -fno-signed-zeros, so this function computes expressions
/// that they change. g++ defines macros, which `ops/detail/refuse_fast_math.hpp` refuses.
[[gnu::always_inline]] inline bool keeps_arithmetic() noexcept {
    // Volatile numbers are not folded, and each is read once.
    float const volatile numbers[] = {1.0F, 0x1p30F, 9.0F, -0.0F};
    float const small = numbers[0];
    float const large = numbers[1];
    float const dividend = numbers[2];
    float const negative_zero = numbers[3];
    return (small + large) - large == 0.0F       // 1 if reassociated
           && dividend / 10.0F == 0x1.ccccccp-1F // times the reciprocal it is the next float
           && !__builtin_signbit(negative_zero + 0.0F);
}

} // namespace ZERO_NAMESPACE::host::detail
