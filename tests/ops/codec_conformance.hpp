#pragma once

// Checks of the guarantees of every codec. A new codec needs one line in codec_conformance_test.cpp
// and a name.

#include "support/catch.hpp"

#include <zero/core/convert.hpp>
#include <zero/ops/block_codecs.hpp>

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace zero::test {

using CodedBlock = std::array<float, detail::coded_elements>;

template <class C>
std::vector<std::uint8_t> encoded(CodedBlock const& block, std::size_t offset = 0) {
    std::vector<std::uint8_t> bytes(C::bytes_per_block + offset + 8, 0xa5);
    float values[detail::coded_elements];
    std::memcpy(values, block.data(), sizeof values);
    C::encode(values, bytes.data() + offset);
    for (std::size_t i = C::bytes_per_block + offset; i < bytes.size(); ++i) {
        CHECK(bytes[i] == 0xa5);
    }
    return {bytes.begin() + static_cast<std::ptrdiff_t>(offset), bytes.end() - 8};
}

template <class C>
CodedBlock decoded(std::vector<std::uint8_t> const& bytes) {
    float values[detail::coded_elements];
    C::decode(bytes.data(), values);
    CodedBlock block;
    std::memcpy(block.data(), values, sizeof values);
    return block;
}

inline float largest_of(CodedBlock const& block) {
    float largest = 0;
    for (float const value : block) {
        largest = std::max(largest, std::abs(value));
    }
    return largest;
}

/// Blocks of every size of values: all bfloat16 values, subnormals, one huge among small ones, one
/// value alone, equal values. All are finite and below 2^126.
inline std::vector<CodedBlock> blocks_to_code() {
    std::vector<CodedBlock> blocks;
    CodedBlock block{};
    blocks.push_back(block);
    for (std::uint32_t first = 0; first < 0x7e80U; first += 64) { // neighbours in one block
        for (std::uint32_t i = 0; i < 64; ++i) {
            block[i] = std::bit_cast<float>((first + i + (i % 2 == 0 ? 0x8000U : 0U)) << 16U);
        }
        blocks.push_back(block);
    }
    std::mt19937 random(7);
    auto const uniform = [&] {
        return static_cast<float>(random() % 2000001U) / 1000000.0F - 1.0F;
    };
    for (int exponent = -149; exponent < 126; ++exponent) {
        for (float& value : block) {
            value = std::ldexp(uniform(), exponent);
        }
        blocks.push_back(block);
        block[random() % 64] = std::ldexp(1.0F, std::min(125, exponent + 40)); // among small ones
        blocks.push_back(block);
        block.fill(std::ldexp(1.0F + std::abs(uniform()) / 2, exponent));
        blocks.push_back(block);
        block.fill(0.0F);
        block[random() % 64] = -std::ldexp(1.0F + std::abs(uniform()) / 2, exponent);
        blocks.push_back(block);
    }
    return blocks;
}

/// Decoded values keep within the bound, and both directions are pure.
template <class C>
void check_error_bound() {
    std::size_t outside = 0;
    std::size_t changed = 0;
    for (CodedBlock const& block : blocks_to_code()) {
        auto const bytes = encoded<C>(block);
        changed += bytes != encoded<C>(block, 1) ? 1 : 0; // any address
        CodedBlock const values = decoded<C>(bytes);
        double const bound = C::error_bound(largest_of(block));
        for (std::size_t i = 0; i < block.size(); ++i) {
            outside += std::abs(double{values[i]} - double{block[i]}) <= bound ? 0 : 1;
        }
    }
    CHECK(outside == 0);
    CHECK(changed == 0);
}

/// Encoding what was decoded gives the same codes, which codecs of frozen parameters need.
template <class C>
void check_kept() {
    std::size_t changed = 0;
    for (CodedBlock const& block : blocks_to_code()) {
        auto const bytes = encoded<C>(block);
        changed += encoded<C>(decoded<C>(bytes)) != bytes ? 1 : 0;
    }
    CodedBlock block{};
    block[7] = std::numeric_limits<float>::quiet_NaN();
    auto const bytes = encoded<C>(block);
    changed += encoded<C>(decoded<C>(bytes)) != bytes ? 1 : 0;
    CHECK(changed == 0);
}

template <class C>
void check_zeros() {
    CodedBlock const zeros = decoded<C>(encoded<C>(CodedBlock{}));
    for (float const value : zeros) {
        CHECK(value == 0.0F);
    }
    CHECK(C::error_bound(0.0F) < 0x1p-100F);
}

/// An infinity or a NaN anywhere is found in every element of its block.
template <class C>
void check_not_finite() {
    for (float const bad :
         {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
          std::numeric_limits<float>::quiet_NaN(), std::bit_cast<float>(0xffc12345U),
          std::bit_cast<float>(0x7f800001U)}) {
        for (std::size_t const at : {std::size_t{0}, std::size_t{31}, std::size_t{63}}) {
            CodedBlock block{};
            block.fill(0.5F);
            block[at] = bad;
            std::size_t finite = 0;
            for (float const value : decoded<C>(encoded<C>(block))) {
                finite += std::isfinite(value) ? 1 : 0;
            }
            CHECK(finite == 0);
        }
    }
}

template <class C>
void check_codec() {
    static_assert(diagnose_codec<C>());
    check_error_bound<C>();
    check_zeros<C>();
    check_kept<C>();
    check_not_finite<C>();
}

} // namespace zero::test
