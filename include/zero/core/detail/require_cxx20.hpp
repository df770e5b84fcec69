#pragma once

// Included before every other header, so that this is the first error under an older standard.
#if __cplusplus <= 201703L
#error "zero: C++20 is required; compile with -std=c++20."
#endif
