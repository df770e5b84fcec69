#include "cuda/mirror.hpp"

#include <zero/cuda/backend.cuh>

#include <cstdint>
#include <vector>

// The number of atomic additions that the norm takes; it is the same on a device. Shared memory
// has no native atomic addition of 64 bits.

namespace zero::test::atomics_test {

namespace {

using Device = cuda::Backend;

constexpr std::size_t digits = ops::Inspection::digits;
constexpr std::size_t warps = cuda::detail::block_threads / 32;

/// Returns the atomic additions of an inspection of n numbers, by four blocks.
template <class A>
std::size_t additions_of(std::size_t n, float largest) {
    cuda::OwnedStream const stream;
    std::vector<A> values(n);
    for (std::size_t i = 0; i < n; ++i) {
        values[i] = from_float<A>(largest * (1.0F - 0.0001F * static_cast<float>(i % 9973)));
    }
    Mirror<A> memory(std::move(values));
    Device::SliceTable<InspectSlice<A>> const table(
        stream.get(), Device::default_memory(),
        zero::detail::List<InspectSlice<A>>{{memory.device(), n, 0}});
    DeviceArray<ops::Inspection> const result(std::vector<ops::Inspection>(1));
    emulated::atomic_additions = 0;
    Device::inspect(stream.get(), table.all(), result.data());
    (void)on_host(result);
    return emulated::atomic_additions;
}

} // namespace

TEMPLATE_TEST_CASE("A block of an inspection adds at most 6 digits for each of the two windows of "
                   "its warps, and its own digits once",
                   "[cuda]", float, bfloat16) {
    for (std::size_t const chunks : {4U, 40U}) {
        std::size_t const all = additions_of<TestType>(8192 * chunks, 0.01F);
        INFO("additions of four blocks: " << all);
        CHECK(all >= 4 * warps * 2);
        CHECK(all <= 4 * (warps * 2 * 6 + digits));
    }
}

} // namespace zero::test::atomics_test
