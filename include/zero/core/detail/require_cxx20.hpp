#pragma once

// Included before anything else, so that this is the first that an older language standard says.
#if __cplusplus <= 201703L
#error "zero: C++20 is needed; compile with -std=c++20 (nvcc: -std=c++20 --expt-relaxed-constexpr)."
#endif
