#include "support/catch.hpp"

#include <zero/core/convert.hpp>
#include <zero/core/storage_types.hpp>
#include <zero/host/kernels.hpp>

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <limits>

namespace zero::test::inspect_large_kernel_test {

TEST_CASE("An inspection of more than 2^31 elements gives the index of one after them",
          "[host][kernel][norm]") {
    // Pages that are never written share one page of zeros: 4 GiB are read and almost none are
    // used.
    std::size_t const elements = (std::size_t{1} << 31U) + 65;
    std::size_t const bytes = elements * sizeof(bfloat16);
    void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    auto* const values = static_cast<bfloat16*>(memory);
    values[elements - 1] = from_float<bfloat16>(std::numeric_limits<float>::infinity());
    values[elements - 2] = from_float<bfloat16>(3.0F);
    ops::Inspection found;
    host::inspect(values, elements, 1000, found);
    ::munmap(memory, bytes);
    CHECK(found.non_finite_count() == 1);
    CHECK(found.first_non_finite == (std::int64_t{1} << 31U) + 64 + 1000);
    CHECK(found.sum_of_squares() == 9.0);
}

} // namespace zero::test::inspect_large_kernel_test
