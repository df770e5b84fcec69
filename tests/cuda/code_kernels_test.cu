#include "cuda/device_model.cuh"
#include "cuda/mirror.hpp"
#include "support/stages.hpp"

#include <zero/comm/loopback.hpp>
#include <zero/cuda/backend.cuh>
#include <zero/cuda/slice_table.hpp>
#include <zero/host/code_blocks.hpp>
#include <zero/stage/update_on_host.hpp>
#include <zero/stage/wire.hpp>
#include <zero/zero.hpp>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

// Weights in codes on a device: the kernels give the bytes and values of the host's loops at any
// length and alignment, and an engine the bits of one on the host.

namespace zero::test::code_kernels_test {

namespace {

using Device = cuda::Backend;

/// A codec that the kernels know only by its functions.
struct Other {
    static constexpr std::size_t bytes_per_block = Int8Blocks::bytes_per_block;
    ZERO_HOST_DEVICE static void encode(float const (&values)[64], std::uint8_t* to) noexcept {
        Int8Blocks::encode(values, to);
    }
    ZERO_HOST_DEVICE static void decode(std::uint8_t const* from, float (&values)[64]) noexcept {
        Int8Blocks::decode(from, values);
    }
    ZERO_HOST_DEVICE static float error_bound(float largest) noexcept {
        return Int8Blocks::error_bound(largest);
    }
};

/// Special values in one range of four.
template <class T>
std::vector<T> inputs(std::size_t n) {
    auto values = kernel_inputs<T>(n, static_cast<std::uint32_t>(n));
    std::mt19937 random(static_cast<std::uint32_t>(n));
    for (std::size_t i = 0; n % 4 != 0 && i < n; ++i) {
        values[i] = from_float<T>(static_cast<float>(random() % 20001U) * 1e-4F - 1.0F);
    }
    return values;
}

template <class C, class T>
int wrong_ranges() {
    cuda::OwnedStream const stream;
    auto& memory = cuda::default_memory();
    constexpr std::size_t first = 128; // offset of the slice in its bucket
    int wrong = 0;
    for (std::size_t const n : device_lengths) {
        for (std::size_t const offset : {0U, 1U, 8U}) {
            Mirror<T> from(inputs<T>(n + offset));
            Mirror<std::uint8_t> codes(
                std::vector<std::uint8_t>((first + n + 128) / 64 * C::bytes_per_block, 0xa5));
            std::vector<CopySlice<T>> const on_host{{from.host(offset), first, n}};
            host::encode<C>(std::span<CopySlice<T> const>(on_host), codes.host());
            cuda::SliceTable<CopySlice<T>> const table(stream.get(), memory,
                                                       {{from.device(offset), first, n}});
            Device::encode<C>(stream.get(), table.all(), codes.device());
            wrong += codes.agrees() ? 0 : 1;

            Mirror<T> to(std::vector<T>(first + n + offset + 70, from_float<T>(3.0F)));
            std::vector<CopySlice<T>> const places{{nullptr, first, n}};
            host::decode<C>(std::span<CopySlice<T> const>(places),
                            static_cast<std::uint8_t const*>(codes.host()), to.host(offset));
            cuda::SliceTable<CopySlice<T>> const received(stream.get(), memory,
                                                          {{nullptr, first, n}});
            Device::decode<C>(stream.get(), received.all(),
                              static_cast<std::uint8_t const*>(codes.device()), to.device(offset));
            wrong += to.agrees() ? 0 : 1;
        }
    }
    return wrong;
}

template <class C>
int wrong_types() {
    return wrong_ranges<C, float>() + wrong_ranges<C, bfloat16>() + wrong_ranges<C, float16>();
}

using DeviceLoopback = Loopback<cuda::Backend>;

template <int N, class C>
void check_engine(int world) {
    CAPTURE(N, world);
    using OnHost = ZeroStage<3, Parameters<bfloat16>, Wire<C>>;
    using OnDevice = ZeroStage<N, Parameters<bfloat16>, Wire<C>, DeviceLoopback>;
    auto const expected = trained<OnHost>(world);
    CHECK((trained_on_device<OnDevice>(world, {.poison = N == 3}) == expected));
    if constexpr (N != 3) {
        CHECK((trained_on_device<OnDevice>(world, {.storage = Storage::scattered}) == expected));
    }
}

} // namespace

TEST_CASE("Kernels of codecs give the bytes and values of the host", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    CHECK(wrong_types<Int8Blocks>() == 0);
    CHECK(wrong_types<Int4Blocks>() == 0);
    CHECK(wrong_ranges<Other, bfloat16>() == 0);
    CHECK(Other::error_bound(127.0F) > 0.5F);
}

TEST_CASE("An engine on a device has the bits of weights in codes on the host", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    check_engine<1, Int8Blocks>(3);
    check_engine<2, Int8Blocks>(1);
    check_engine<2, Int4Blocks>(2);
    check_engine<3, Int8Blocks>(2);
    check_engine<3, Int4Blocks>(3);
}

TEST_CASE("An engine on a device has the bits of frozen parameters in codes on the host",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    using OnHost = ZeroStage<3, Parameters<bfloat16>, FrozenWeights<Int4Blocks>>;
    using OnDevice = ZeroStage<3, Parameters<bfloat16>, FrozenWeights<Int4Blocks>, DeviceLoopback>;
    CHECK((trained_on_device<OnDevice>(3, {.poison = true}) == trained<OnHost>(3)));
    CHECK((trained_on_device<OnDevice>(1) == trained<OnHost>(1)));
}

TEST_CASE("Updates on the host change no bit of weights in codes", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    using States = Offload<To<HostMemory, BufferKind::optimizer_state, BufferKind::master_weights>>;
    using OnHost = ZeroStage<3, Parameters<bfloat16>, Wire<Int8Blocks>>;
    using OnDevice = ZeroStage<3, Parameters<bfloat16>, Wire<Int8Blocks>, DeviceLoopback, States>;
    CHECK((trained_on_device<OnDevice>(2) == trained<OnHost>(2)));
}

} // namespace zero::test::code_kernels_test
