#include "host/kernel_inputs.hpp"
#include "ops/codec_conformance.hpp"

#include <zero/host/code_blocks.hpp>
#include <zero/ops/block_codecs.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

namespace zero::test::code_blocks_kernel_test {

// Compares the loops with the codec's own functions on one block, with every instruction set, every
// length up to 200 and unaligned ranges. Bytes and elements next to a range must not change.
namespace {

/// A codec that the loops know only by its functions.
template <class C>
struct Unknown {
    static constexpr std::size_t bytes_per_block = C::bytes_per_block;
    static void encode(float const (&values)[64], std::uint8_t* to) noexcept {
        C::encode(values, to);
    }
    static void decode(std::uint8_t const* from, float (&values)[64]) noexcept {
        C::decode(from, values);
    }
    static float error_bound(float largest) noexcept { return C::error_bound(largest); }
};

template <class C, class T>
std::vector<std::uint8_t> expected_bytes(std::vector<T> const& values) {
    std::vector<std::uint8_t> bytes((values.size() + 63) / 64 * C::bytes_per_block);
    for (std::size_t begin = 0; begin < values.size(); begin += 64) {
        float block[64] = {};
        for (std::size_t i = begin; i < std::min(begin + 64, values.size()); ++i) {
            block[i - begin] = to_float(values[i]);
        }
        C::encode(block, bytes.data() + begin / 64 * C::bytes_per_block);
    }
    return bytes;
}

template <class C, class T>
std::vector<T> expected_values(std::vector<std::uint8_t> const& bytes, std::size_t n) {
    std::vector<T> values(n);
    for (std::size_t begin = 0; begin < n; begin += 64) {
        float block[64];
        C::decode(bytes.data() + begin / 64 * C::bytes_per_block, block);
        for (std::size_t i = begin; i < std::min(begin + 64, n); ++i) {
            values[i] = from_float<T>(canonical(block[i - begin]));
        }
    }
    return values;
}

/// Values of one size, or special ones among them.
template <class T>
std::vector<T> inputs(std::size_t n, std::uint32_t seed) {
    auto values = kernel_inputs<T>(n, seed);
    std::mt19937 random(seed);
    for (std::size_t i = 0; seed % 4 != 0 && i < n; ++i) {
        values[i] = from_float<T>(static_cast<float>(random() % 20001U) * 1e-4F - 1.0F);
    }
    return values;
}

template <class C, class T>
int wrong_ranges() {
    int wrong = 0;
    for (auto const set : instruction_sets) {
        WithInstructionSet const scope(set);
        for (std::size_t n = 0; scope.is_supported() && n <= 200; ++n) {
            std::size_t const offset = n % 5;
            auto const values = inputs<T>(n, static_cast<std::uint32_t>(n));
            std::vector<T> in(n + offset);
            std::copy(values.begin(), values.end(),
                      in.begin() + static_cast<std::ptrdiff_t>(offset));
            auto const bytes = expected_bytes<C>(values);
            std::vector<std::uint8_t> out(bytes.size() + offset + 40, 0xa5);
            host::encode<C>(out.data() + offset, static_cast<T const*>(in.data()) + offset, n);
            std::vector<std::uint8_t> whole(out.size(), 0xa5);
            std::copy(bytes.begin(), bytes.end(),
                      whole.begin() + static_cast<std::ptrdiff_t>(offset));
            wrong += out != whole ? 1 : 0;

            auto const decoded = expected_values<C, T>(bytes, n);
            for (std::size_t const moved : {std::size_t{0}, std::size_t{1} << 30U}) {
                std::vector<T> to(n + offset + 40, from_float<T>(123.0F));
                auto all = to;
                std::copy(decoded.begin(), decoded.end(),
                          all.begin() + static_cast<std::ptrdiff_t>(offset));
                host::decode<C>(to.data() + offset, out.data() + offset, n, moved);
                wrong += same_bits(to, all) ? 0 : 1;
            }
        }
    }
    return wrong;
}

/// Random codes whose products with the scale are around the largest float.
template <class C>
std::vector<std::uint8_t> large_blocks(std::size_t n, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<std::uint8_t> bytes((n + 63) / 64 * C::bytes_per_block);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = static_cast<std::uint8_t>(random());
        bool const is_scale = i % C::bytes_per_block + 1 == C::bytes_per_block; // its upper byte
        bytes[i] = is_scale ? static_cast<std::uint8_t>(0x7a + random() % 6 + random() % 2 * 0x80)
                            : bytes[i];
    }
    return bytes;
}

/// Adds the ranks' values one by one.
template <class C, class A>
int wrong_sums(bool has_large_blocks = false) {
    int wrong = 0;
    for (auto const set : instruction_sets) {
        WithInstructionSet const scope(set);
        for (std::size_t n = 0; scope.is_supported() && n <= 200; ++n) {
            std::size_t const world = n % 5 + 1;
            std::size_t const bytes = (n + 63) / 64 * C::bytes_per_block;
            std::vector<std::uint8_t> codes;
            std::vector<float> sum(n);
            for (std::size_t rank = 0; rank < world; ++rank) {
                auto const seed = static_cast<std::uint32_t>(n * 8 + rank);
                auto const own = has_large_blocks ? large_blocks<C>(n, seed)
                                                  : expected_bytes<C>(inputs<float>(n, seed));
                auto const values = expected_values<C, float>(own, n);
                for (std::size_t i = 0; i < n; ++i) {
                    sum[i] = rank == 0 ? values[i] : sum[i] + values[i];
                }
                codes.insert(codes.end(), own.begin(), own.end());
            }
            std::size_t const offset = n % 3;
            for (std::size_t const moved : {std::size_t{0}, std::size_t{1} << 30U}) {
                for (bool const is_added : {false, true}) {
                    std::vector<A> to(n + offset + 40, from_float<A>(0.375F));
                    auto all = to;
                    for (std::size_t i = 0; i < n; ++i) {
                        float const before = to_float(to[offset + i]);
                        all[offset + i] =
                            from_float<A>(canonical(is_added ? before + sum[i] : sum[i]));
                    }
                    host::decode_sum<C>(to.data() + offset,
                                        static_cast<std::uint8_t const*>(codes.data()),
                                        CodedPieces{world, bytes}, n, is_added, moved);
                    wrong += same_bits(to, all) ? 0 : 1;
                }
            }
        }
    }
    return wrong;
}

/// Encodes with errors, element by element.
template <class C, class S, class T>
int wrong_errors(float factor, float beta) {
    int wrong = 0;
    for (auto const set : instruction_sets) {
        WithInstructionSet const scope(set);
        for (std::size_t n = 0; scope.is_supported() && n <= 1200; n += n < 140 ? 1 : 53) {
            auto const in = inputs<T>(n, static_cast<std::uint32_t>(n));
            std::vector<float> old(n);
            for (std::size_t i = 0; i < n; ++i) {
                old[i] = static_cast<float>(i % 7) * 0.01F - 0.03F;
            }
            std::vector<std::uint8_t> stored = expected_bytes<Int8Blocks>(old);
            if constexpr (!std::is_same_v<S, float>) {
                stored = expected_bytes<S>(old);
                old = expected_values<S, float>(stored, n);
            }
            std::vector<float> floats = old;
            std::vector<float> values(n);
            for (std::size_t i = 0; i < n; ++i) {
                old[i] *= factor;
                values[i] = to_float(in[i]) + old[i];
            }
            auto const bytes = expected_bytes<C>(values);
            auto const decoded = expected_values<C, float>(bytes, n);
            for (std::size_t i = 0; i < n; ++i) {
                float const lost = (1.0F - beta) * (values[i] - decoded[i]);
                float const error = std::fma(beta, old[i], lost);
                old[i] = std::isfinite(error) ? error : 0.0F;
            }
            std::vector<std::uint8_t> out(bytes.size() + 40, 0xa5);
            auto expected = bytes;
            expected.resize(out.size(), 0xa5);
            if constexpr (std::is_same_v<S, float>) {
                host::encode_with_feedback<C, S>(out.data(), in.data(), n, floats.data(), factor,
                                                 beta);
                wrong += same_bits(floats, old) ? 0 : 1;
            } else {
                host::encode_with_feedback<C, S>(out.data(), in.data(), n, stored.data(), factor,
                                                 beta);
                wrong += stored == expected_bytes<S>(old) ? 0 : 1;
            }
            wrong += out == expected ? 0 : 1;
        }
    }
    return wrong;
}

template <class C>
int wrong_types() {
    return wrong_ranges<C, float>() + wrong_ranges<C, bfloat16>() + wrong_ranges<C, float16>();
}

} // namespace

TEST_CASE("The loops of codecs give the bytes and values of the codec's functions") {
    CHECK(wrong_types<Int8Blocks>() == 0);
    CHECK(wrong_types<Int4Blocks>() == 0);
    CHECK(wrong_types<Unknown<Int8Blocks>>() == 0);
}

TEST_CASE("Decoded elements of all ranks are added in rank order and rounded once") {
    CHECK(wrong_sums<Int8Blocks, float>() == 0);
    CHECK(wrong_sums<Int8Blocks, bfloat16>() == 0);
    CHECK(wrong_sums<Int4Blocks, float>() == 0);
    CHECK(wrong_sums<Int4Blocks, float16>() == 0);
    CHECK(wrong_sums<Unknown<Int4Blocks>, float>() == 0);
    CHECK(wrong_sums<Int8Blocks, float>(true) == 0); // products overflow before they are added
    CHECK(wrong_sums<Int4Blocks, float>(true) == 0);
}

TEST_CASE("Errors are added before the encoding, and replaced by what it lost") {
    CHECK((wrong_errors<Int4Blocks, float, bfloat16>(1.0F, 0.0F)) == 0);
    CHECK((wrong_errors<Int8Blocks, float, float>(0.5F, 0.75F)) == 0);
    CHECK((wrong_errors<Int8Blocks, Int8Blocks, float16>(2.0F, 0.8F)) == 0);
    CHECK((wrong_errors<Unknown<Int4Blocks>, Int4Blocks, float>(0.0F, 0.8F)) == 0);
}

TEST_CASE("All blocks have the same bytes with every instruction set") {
    int wrong = 0;
    for (auto const set : instruction_sets) {
        WithInstructionSet const scope(set);
        for (CodedBlock const& block : blocks_to_code()) {
            std::vector<float> const values(block.begin(), block.end());
            std::vector<std::uint8_t> bytes(66);
            host::encode<Int8Blocks>(bytes.data(), values.data(), 64);
            wrong += bytes == expected_bytes<Int8Blocks>(values) ? 0 : 1;
            bytes.resize(34);
            host::encode<Int4Blocks>(bytes.data(), values.data(), 64);
            wrong += bytes == expected_bytes<Int4Blocks>(values) ? 0 : 1;
        }
    }
    CHECK(wrong == 0);
}

TEST_CASE("Slices of a bucket have their codes in the place of their blocks") {
    std::vector<float> first(70, 1.0F);
    std::vector<float> second(64, -2.0F);
    std::vector<CopySlice<float>> const slices{{first.data(), 64, 70}, {second.data(), 192, 64}};
    std::vector<std::uint8_t> codes(4 * 66, 0xa5);
    host::encode<Int8Blocks>(std::span<CopySlice<float> const>(slices), codes.data());
    CHECK(std::all_of(codes.begin(), codes.begin() + 66, [](auto byte) { return byte == 0xa5; }));
    CHECK(codes[2 * 66 + 6] == 0); // behind the end of the first
    std::vector<float> bucket(256, 5.0F);
    std::vector<CopySlice<float>> const places{{nullptr, 64, 70}, {nullptr, 192, 64}};
    host::decode<Int8Blocks>(std::span<CopySlice<float> const>(places),
                             static_cast<std::uint8_t const*>(codes.data()), bucket.data());
    CHECK(bucket[63] == 5.0F);
    CHECK(std::abs(bucket[64] - 1.0F) <= Int8Blocks::error_bound(1.0F));
    CHECK(bucket[133] == bucket[64]);
    CHECK(bucket[134] == 5.0F);
    CHECK(std::abs(bucket[192] + 2.0F) <= Int8Blocks::error_bound(2.0F));
    host::decode<Int8Blocks>(std::span<CopySlice<float> const>(slices),
                             static_cast<std::uint8_t const*>(codes.data()), bucket.data());
    CHECK(first[69] == bucket[133]);
    CHECK(second[63] == bucket[255]);
}

} // namespace zero::test::code_blocks_kernel_test
