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

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

// Weights and gradients in codes on a device: the kernels give the bytes and values of the host's
// loops at any length and alignment, and an engine the bits of one on the host.

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

/// Pieces of a bucket in random places, with codes in another order, and elements of the bucket and
/// blocks of codes that are in none.
struct RandomPieces {
    explicit RandomPieces(std::mt19937& random) {
        std::vector<std::size_t> order(random() % 5);
        for (std::size_t i = 0; i < order.size(); ++i) {
            order[i] = i;
        }
        std::shuffle(order.begin(), order.end(), random);
        pieces.resize(order.size());
        for (CodedSlice& piece : pieces) {
            piece.elements = random() % 3 == 0 ? 8192 + random() % 9000 // more than a chunk
                                               : device_lengths[random() % device_lengths.size()];
            elements += random() % 3 * 64;
            piece.bucket_begin = elements;
            elements += (piece.elements + 63) / 64 * 64;
        }
        for (std::size_t const i : order) {
            blocks += random() % 3;
            pieces[i].block = blocks;
            blocks += (pieces[i].elements + 63) / 64;
        }
        elements += 64;
        blocks += 1;
    }

    [[nodiscard]] zero::detail::List<CodedSlice> list() const {
        zero::detail::List<CodedSlice> result;
        for (CodedSlice const& piece : pieces) {
            result.push_back(piece);
        }
        return result;
    }

    std::vector<CodedSlice> pieces;
    std::size_t elements = 0; ///< of the bucket
    std::size_t blocks = 0;   ///< of codes
};

/// Random bytes decode to anything: infinities, NaNs with any bits, codes that no encoder writes.
std::vector<std::uint8_t> random_bytes(std::size_t bytes, std::mt19937& random) {
    std::vector<std::uint8_t> result(bytes);
    for (auto& byte : result) {
        byte = static_cast<std::uint8_t>(random());
    }
    return result;
}

/// Random pieces, known to host and device, and where their values begin.
struct PiecesOfBoth {
    explicit PiecesOfBoth(int seed) : random(static_cast<std::uint32_t>(seed)) {}

    std::mt19937 random;
    RandomPieces const all{random};
    std::size_t const offset = std::size_t{random() % 3} * (random() % 9);
    cuda::OwnedStream const stream;
    HostBackend::Queue const on_host = HostBackend::default_compute_queue();
    std::span<CodedSlice const> const pieces{all.pieces};
    cuda::SliceTable<CodedSlice> const table{stream.get(), cuda::default_memory(), all.list()};
};

/// Encodes gradients without errors and twice with them. Compares all memory, also behind pieces.
template <class C, class S, class T>
int wrong_pieces(int seeds) {
    using E = std::conditional_t<std::is_same_v<S, float>, float, std::uint8_t>;
    int wrong = 0;
    for (int seed = 0; seed < seeds; ++seed) {
        PiecesOfBoth of(seed);
        auto& random = of.random;
        Mirror<T> bucket(inputs<T>(of.all.elements + of.offset));
        T const* const on_host = bucket.host(of.offset);
        T const* const on_device = bucket.device(of.offset);
        Mirror<std::uint8_t> codes(random_bytes(of.all.blocks * C::bytes_per_block, random));
        HostBackend::encode<C>(of.on_host, of.pieces, on_host, codes.host());
        Device::encode<C>(of.stream.get(), of.table.all(), on_device, codes.device());
        wrong += codes.agrees() ? 0 : 1;

        std::vector<E> old;
        if constexpr (std::is_same_v<S, float>) {
            old = inputs<float>(of.all.elements);
        } else {
            old = random_bytes(of.all.elements / 64 * S::bytes_per_block, random);
        }
        Mirror<E> errors(old);
        float const factors[] = {0.0F, 0.5F, 2.0F, 0x1p100F};
        Mirror<float> factor(std::vector<float>{factors[random() % 4]});
        float const beta = static_cast<float>(random() % 5) * 0.2F;
        for (bool const is_first : {true, false}) { // reads what the first wrote
            HostBackend::encode_with_feedback<C, S>(
                of.on_host, of.pieces, on_host, codes.host(),
                CodedErrors<E>{errors.host(), is_first ? factor.host() : nullptr, beta});
            Device::encode_with_feedback<C, S>(
                of.stream.get(), of.table.all(), on_device, codes.device(),
                CodedErrors<E>{errors.device(), is_first ? factor.device() : nullptr, beta});
            wrong += codes.agrees() ? 0 : 1;
            wrong += errors.agrees() ? 0 : 1;
        }
    }
    return wrong;
}

/// Adds the codes of some ranks.
template <class C, class A>
int wrong_sums(int seeds) {
    int wrong = 0;
    for (int seed = 0; seed < seeds; ++seed) {
        PiecesOfBoth of(seed);
        CodedPieces const from{of.random() % 9 + 1, of.all.blocks * C::bytes_per_block};
        Mirror<std::uint8_t> codes(random_bytes(from.ranks * from.bytes, of.random));
        std::uint8_t const* const on_host = codes.host();
        std::uint8_t const* const on_device = codes.device();
        Mirror<A> sums(inputs<A>(of.all.elements + of.offset));
        for (bool const is_added : {true, false}) {
            HostBackend::decode_sum<C>(of.on_host, of.pieces, on_host, from, sums.host(of.offset),
                                       is_added);
            Device::decode_sum<C>(of.stream.get(), of.table.all(), on_device, from,
                                  sums.device(of.offset), is_added);
            wrong += sums.agrees() ? 0 : 1;
        }
    }
    return wrong;
}

template <class C>
int wrong_types() {
    return wrong_ranges<C, float>() + wrong_ranges<C, bfloat16>() + wrong_ranges<C, float16>();
}

using DeviceLoopback = Loopback<cuda::Backend>;

template <int N, class... Codecs>
void check_engine(int world) {
    CAPTURE(N, world);
    using OnHost = ZeroStage<3, Parameters<bfloat16>, Wire<Codecs...>>;
    using OnDevice = ZeroStage<N, Parameters<bfloat16>, Wire<Codecs...>, DeviceLoopback>;
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

TEST_CASE("Kernels encode gradients with and without errors to the bytes of the host, and keep its "
          "errors",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    CHECK(wrong_pieces<Int8Blocks, float, bfloat16>(12) == 0);
    CHECK(wrong_pieces<Int4Blocks, float, float>(12) == 0);
    CHECK(wrong_pieces<Int8Blocks, Int4Blocks, float16>(12) == 0);
    CHECK(wrong_pieces<Int4Blocks, Int8Blocks, bfloat16>(12) == 0);
    CHECK(wrong_pieces<Other, float, float>(6) == 0);
    CHECK(wrong_pieces<Int4Blocks, Other, bfloat16>(6) == 0);
    CHECK(wrong_pieces<Other, Int8Blocks, float16>(6) == 0);
}

TEST_CASE("Kernels add the decoded elements of all ranks as the host does", "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    CHECK(wrong_sums<Int8Blocks, float>(12) == 0);
    CHECK(wrong_sums<Int4Blocks, float>(12) == 0);
    CHECK(wrong_sums<Int8Blocks, bfloat16>(12) == 0);
    CHECK(wrong_sums<Int4Blocks, float16>(12) == 0);
    CHECK(wrong_sums<Other, bfloat16>(6) == 0);
}

TEST_CASE("An engine on a device has the bits of weights and gradients in codes on the host",
          "[cuda]") {
    if (skips_without_device()) {
        return;
    }
    check_engine<1, Int8Blocks>(3);
    check_engine<2, Int8Blocks>(1);
    check_engine<2, Int4Blocks>(2);
    check_engine<3, Int8Blocks>(2);
    check_engine<3, Int4Blocks>(3);
    check_engine<2, Plain, Int4Blocks, ErrorFeedback<Int8Blocks>>(2);
    check_engine<3, Int8Blocks, Int4Blocks, ErrorFeedback<float>>(2);
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
