#include "cuda/device.hpp"

#include <zero/cuda/backend.cuh>

// This file alone is compiled with -use_fast_math: see CMakeLists.txt.

TEST_CASE("Code that was compiled with -use_fast_math is refused", "[cuda]") {
    if (zero::test::skips_without_device()) {
        return;
    }
    zero::cuda::OwnedStream const stream;
    CHECK_THROWS_AS(zero::cuda::Backend::require_arithmetic(stream.get()), zero::InvalidArgument);
}
