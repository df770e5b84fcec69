#pragma once

// The library guarantees equal bits between stages, compilers, instruction sets and devices. Flags
// that let a compiler change the value of an expression would break this silently, so detectable
// ones are errors.
#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__)        \
    || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ != 0)
#error "zero: -ffast-math and its parts change results and hide infinities; compile without them."
#endif
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0
#error                                                                                             \
    "zero: float arithmetic is done in a wider type here (x87?); compile with SSE arithmetic (-msse2 -mfpmath=sse)."
#endif
