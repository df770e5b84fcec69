#include "cuda/mirror.hpp"

#include <zero/cuda/backend.cuh>
#include <zero/host/host_backend.hpp>
#include <zero/host/kernels.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

// Element-wise operations: the device gives the bits of the host's loops at any length and
// alignment.

namespace zero::test::element_kernels_test {

namespace {

using Device = cuda::Backend;

/// Counts the ranges for which `body(length, offset)` reports a difference.
template <class Body>
int wrong_ranges(Body const& body) {
    int wrong = 0;
    for (std::size_t const length : device_lengths) {
        for (std::size_t const offset : device_offsets) {
            wrong += body(length, offset) ? 0 : 1;
        }
    }
    return wrong;
}

template <class To, class From>
int wrong_conversions(float factor) {
    cuda::OwnedStream const stream;
    return wrong_ranges([&](std::size_t n, std::size_t offset) {
        Mirror<From> from(kernel_inputs<From>(n + 16, 1));
        Mirror<To> to(kernel_inputs<To>(n + 16, 2));
        host::convert(to.host(offset), from.host(offset), n, factor);
        Device::convert(stream.get(), to.device(offset), from.device(offset), n, factor);
        return to.agrees();
    });
}

template <class To, class From>
int wrong_accumulations() {
    cuda::OwnedStream const stream;
    return wrong_ranges([&](std::size_t n, std::size_t offset) {
        Mirror<From> from(kernel_inputs<From>(n + 16, 1));
        Mirror<To> to(kernel_inputs<To>(n + 16, 2));
        host::accumulate(to.host(offset), from.host(offset), n);
        Device::accumulate(stream.get(), to.device(offset), from.device(offset), n);
        return to.agrees();
    });
}

template <class T>
int wrong_fills(T value) {
    cuda::OwnedStream const stream;
    return wrong_ranges([&](std::size_t n, std::size_t offset) {
        Mirror<T> to(std::vector<T>(n + 16));
        std::fill_n(to.host(offset), n, value);
        Device::fill(stream.get(), to.device(offset), n, value);
        return to.agrees();
    });
}

template <class T>
int wrong_sums(int world) {
    cuda::OwnedStream const stream;
    return wrong_ranges([&](std::size_t n, std::size_t offset) {
        std::vector<Mirror<T>> peers;
        std::vector<T const*> on_host;
        std::vector<T const*> on_device;
        for (int rank = 0; rank < world; ++rank) {
            peers.emplace_back(kernel_inputs<T>(n + 16, static_cast<std::uint32_t>(rank)));
        }
        for (auto& peer : peers) {
            on_host.push_back(peer.host(offset));
            on_device.push_back(peer.device(offset));
        }
        Mirror<T> sum(std::vector<T>(n + 16));
        host::sum_ranks(sum.host(offset), on_host.data(), world, n);
        Device::sum_ranks(stream.get(), sum.device(offset), on_device.data(), world, n);
        on_device.assign(on_device.size(), nullptr); // the table was copied
        return sum.agrees();
    });
}

/// A sum as a subtree of micro-batches; if it has floats, over the oldest of the held sums.
template <class A, class T>
int wrong_trees(int world, std::size_t group, std::size_t held) {
    cuda::OwnedStream const stream;
    return wrong_ranges([&](std::size_t n, std::size_t offset) {
        std::vector<Mirror<T>> peers;
        std::vector<T const*> on_host;
        std::vector<T const*> on_device;
        for (int rank = 0; rank < world; ++rank) {
            peers.emplace_back(kernel_inputs<T>(n + 16, static_cast<std::uint32_t>(rank)));
        }
        for (auto& peer : peers) {
            on_host.push_back(peer.host(offset));
            on_device.push_back(peer.device(offset));
        }
        std::size_t const stride =
            (n + 16) / 4 * 4 + offset / 8; // with 8 only these are not aligned
        Mirror<float> sums(kernel_inputs<float>(3 * stride + 16, 99));
        Mirror<A> out(std::vector<A>(n + 16));
        auto const with_sums = [&](A* to, float* from) {
            float* oldest = from;
            if constexpr (std::is_same_v<A, float>) {
                oldest = to;
            }
            return ops::TreeSum<A>{to, {oldest, from + stride, stride, held, group}};
        };
        host::sum_tree(with_sums(out.host(offset), sums.host(offset)), on_host.data(), world, n);
        Device::sum_tree(stream.get(), with_sums(out.device(offset), sums.device(offset)),
                         on_device.data(), world, n);
        on_device.assign(on_device.size(), nullptr); // the table was copied
        return out.agrees() && sums.agrees();
    });
}

/// Copies tensors of every length to a bucket and back. The tensors are `gap` elements apart, so
/// that some or all of them are not aligned.
template <class InBucket, class T>
int wrong_copies(std::size_t first, std::size_t gap) {
    cuda::OwnedStream const stream;
    std::vector<CopySlice<T>> on_host;
    std::vector<CopySlice<T>> on_device;
    std::size_t elements = first;
    for (std::size_t const length : device_lengths) {
        elements += length + gap;
    }
    Mirror<T> tensors(kernel_inputs<T>(elements, 3));
    Mirror<InBucket> bucket(kernel_inputs<InBucket>(elements, 4));
    std::size_t at = first;
    for (std::size_t const length : device_lengths) {
        on_host.push_back({tensors.host(at), at + gap / 2, length});
        on_device.push_back({tensors.device(at), at + gap / 2, length});
        at += length + gap;
    }
    Device::SliceTable<CopySlice<T>> const table(stream.get(), Device::default_memory(),
                                                 zero::detail::List<CopySlice<T>>(on_device));
    host::InlineQueue queue;
    zero::HostBackend::copy_to_bucket(&queue, std::span<CopySlice<T> const>(on_host),
                                      bucket.host());
    Device::copy_to_bucket(stream.get(), table.all(), bucket.device());
    int const wrong = bucket.agrees() ? 0 : 1;
    std::vector<T> const cleared(elements);
    std::copy(cleared.begin(), cleared.end(), tensors.host());
    copy_to_device(tensors.device(), cleared.data(), elements);
    zero::HostBackend::copy_from_bucket(&queue, std::span<CopySlice<T> const>(on_host),
                                        static_cast<InBucket const*>(bucket.host()));
    Device::copy_from_bucket(stream.get(), table.all(),
                             static_cast<InBucket const*>(bucket.device()));
    return wrong + (tensors.agrees() ? 0 : 2);
}

} // namespace

TEST_CASE("A device copies tensors of every length at every alignment to a bucket and back",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    for (std::size_t const first : {0U, 1U, 4U}) {
        for (std::size_t const gap : {0U, 1U, 16U}) {
            INFO("first tensor at " << first << ", gaps of " << gap);
            CHECK(wrong_copies<float, float>(first, gap) == 0);
            CHECK(wrong_copies<bfloat16, bfloat16>(first, gap) == 0);
            CHECK(wrong_copies<float, bfloat16>(first, gap) == 0);
            CHECK(wrong_copies<float16, float>(first, gap) == 0);
        }
    }
}

TEST_CASE(
    "A copy to a bucket runs although the program left a CUDA error, which stays the last one",
    "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    cuda::OwnedStream const stream;
    Mirror<float> tensor(std::vector<float>(100, 2.0F));
    DeviceArray<float> const bucket(100);
    Device::SliceTable<CopySlice<float>> const table(
        stream.get(), Device::default_memory(),
        zero::detail::List<CopySlice<float>>{{tensor.device(), 0, 100}});
    CHECK(cudaSetDevice(-1) != cudaSuccess);
    REQUIRE(cudaPeekAtLastError() != cudaSuccess);
    CHECK_NOTHROW(Device::copy_to_bucket(stream.get(), table.all(), bucket.data()));
    CHECK(cudaGetLastError() != cudaSuccess); // still the program's
    CHECK(on_host(bucket) == std::vector<float>(100, 2.0F));
}

TEMPLATE_TEST_CASE("A copy to a bucket and back between equal types of 16 bits keeps every bit, "
                   "also of signalling NaN",
                   "[cuda]", bfloat16, float16) {
    if (skips_without_device()) {
        return;
    }
    cuda::OwnedStream const stream;
    std::vector<TestType> all(1U << 16U);
    for (std::uint32_t bits = 0; bits < all.size(); ++bits) {
        all[bits].bits = static_cast<std::uint16_t>(bits);
    }
    for (std::size_t const offset : {0U, 1U}) { // aligned packs, and single elements
        DeviceArray<TestType> const from(all);
        DeviceArray<TestType> const bucket(all.size());
        DeviceArray<TestType> const to(all.size());
        auto const table_of = [&](DeviceArray<TestType> const& memory) {
            return Device::SliceTable<CopySlice<TestType>>(
                stream.get(), Device::default_memory(),
                zero::detail::List<CopySlice<TestType>>{
                    {memory.data() + offset, 0, all.size() - offset}});
        };
        auto const source = table_of(from);
        auto const target = table_of(to);
        Device::copy_to_bucket(stream.get(), source.all(), bucket.data());
        Device::copy_from_bucket(stream.get(), target.all(),
                                 static_cast<TestType const*>(bucket.data()));
        auto const found = on_host(to);
        CHECK(same_bits(
            std::vector<TestType>(found.begin() + static_cast<std::ptrdiff_t>(offset), found.end()),
            std::vector<TestType>(all.begin() + static_cast<std::ptrdiff_t>(offset), all.end())));
    }
}

TEST_CASE("A device converts every length at every alignment to the bits of the host", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    for (float const factor : {1.0F, 0.7F, 0x1p-140F}) {
        INFO("factor " << factor);
        CHECK(wrong_conversions<float, float>(factor) == 0);
        CHECK(wrong_conversions<bfloat16, float>(factor) == 0);
        CHECK(wrong_conversions<float16, float>(factor) == 0);
        CHECK(wrong_conversions<float, bfloat16>(factor) == 0);
        CHECK(wrong_conversions<float, float16>(factor) == 0);
        CHECK(wrong_conversions<float16, bfloat16>(factor) == 0);
        CHECK(wrong_conversions<float16, float16>(factor) == 0);
    }
}

TEST_CASE("A device accumulates to the bits of the host", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    CHECK(wrong_accumulations<float, float>() == 0);
    CHECK(wrong_accumulations<float, bfloat16>() == 0);
    CHECK(wrong_accumulations<bfloat16, bfloat16>() == 0);
    CHECK(wrong_accumulations<float16, float16>() == 0);
}

TEST_CASE("A device fills ranges and writes nothing beside them", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    CHECK(wrong_fills(0.0F) == 0);
    CHECK(wrong_fills(1.5F) == 0);
    CHECK(wrong_fills(from_float<bfloat16>(std::numeric_limits<float>::quiet_NaN())) == 0);
    CHECK(wrong_fills(std::uint8_t{0x5a}) == 0);
    CHECK(wrong_fills(std::uint16_t{0xffff}) == 0);
    CHECK(wrong_fills(std::int64_t{-7}) == 0);
}

TEST_CASE("A device sums ranks in rank order to the bits of the host, also more ranks than fit "
          "into a small table",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    for (int const world : {1, 2, 3, 8, 9, 17}) {
        INFO("world " << world);
        CHECK(wrong_sums<float>(world) == 0);
        CHECK(wrong_sums<bfloat16>(world) == 0);
        CHECK(wrong_sums<float16>(world) == 0);
    }
}

TEST_CASE("A device sums ranks as a subtree of micro-batches to the bits of the host, with sums "
          "that are held",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    struct Case {
        int world;
        std::size_t group;
        std::size_t held;
    };
    for (auto const& [world, group, held] : {Case{1, 1, 0}, Case{1, 1, 2}, Case{2, 1, 1},
                                             Case{4, 4, 0}, Case{6, 3, 0}, Case{7, 7, 3}}) {
        INFO("world " << world << ", groups of " << group << ", held " << held);
        CHECK(wrong_trees<float, float>(world, group, held) == 0);
        CHECK(wrong_trees<float, float16>(world, group, held) == 0);
        CHECK(wrong_trees<bfloat16, bfloat16>(world, group, held) == 0);
    }
    for (auto const& [world, group, held] :
         {Case{8, 1, 0}, Case{8, 8, 2}, Case{9, 9, 1}, Case{12, 3, 0}, Case{16, 1, 0}}) {
        INFO("world " << world << ", groups of " << group << ", held " << held);
        CHECK(wrong_trees<float, bfloat16>(world, group, held) == 0);
    }
}

TEST_CASE("A device sums a subtree of as many ranks as it supports", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    constexpr std::size_t n = 77;
    for (std::size_t const group : {1U, 85U, 256U}) {
        int const world = group == 85 ? 255 : 256;
        INFO("world " << world << ", groups of " << group);
        cuda::OwnedStream const stream;
        std::vector<Mirror<float>> peers;
        std::vector<float const*> on_host;
        std::vector<float const*> on_device;
        for (int rank = 0; rank < world; ++rank) {
            peers.emplace_back(kernel_inputs<float>(n, static_cast<std::uint32_t>(rank)));
        }
        for (auto& peer : peers) {
            on_host.push_back(peer.host());
            on_device.push_back(peer.device());
        }
        Mirror<float> out(std::vector<float>(n + 1));
        ops::HeldSums held;
        held.rank_group = group;
        host::sum_tree(ops::TreeSum<float>{out.host(), held}, on_host.data(), world, n);
        Device::sum_tree(stream.get(), ops::TreeSum<float>{out.device(), held}, on_device.data(),
                         world, n);
        CHECK(out.agrees());
    }
}

TEST_CASE("A sum over more ranks than one device supports is refused, and nothing is enqueued",
          "[cuda]") {
    std::vector<float const*> const peers(257, nullptr);
    CHECK_THROWS_AS(Device::sum_ranks(nullptr, static_cast<float*>(nullptr), peers.data(), 257, 1),
                    InvalidArgument);
    CHECK_THROWS_AS(
        Device::sum_tree(nullptr, ops::TreeSum<float>{nullptr, {}}, peers.data(), 257, 1),
        InvalidArgument);
}

TEST_CASE("Sums and minima of integers over ranks are exact", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    cuda::OwnedStream const stream;
    DeviceArray<std::int64_t> const a(std::vector<std::int64_t>{1, -5, std::int64_t{1} << 40});
    DeviceArray<std::int64_t> const b(std::vector<std::int64_t>{3, 7, 1});
    DeviceArray<std::int64_t> const sum(3);
    DeviceArray<std::int64_t> const least(3);
    std::int64_t const* const peers[] = {a.data(), b.data()};
    Device::sum_integers(stream.get(), sum.data(), peers, 2, 3);
    Device::min_integers(stream.get(), least.data(), peers, 2, 3);
    CHECK(on_host(sum) == std::vector<std::int64_t>{4, 2, (std::int64_t{1} << 40) + 1});
    CHECK(on_host(least) == std::vector<std::int64_t>{1, -5, 1});
}

TEST_CASE("Code that keeps the rules of rounding is accepted", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    cuda::OwnedStream const stream;
    CHECK_NOTHROW(Device::require_arithmetic(stream.get()));
}

} // namespace zero::test::element_kernels_test
