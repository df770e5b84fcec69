#pragma once

#include "checksum.hpp"

#include <span> // with the options of the translation unit

// g++ unrolls the loops of XXH3 at -O3 only, where they hash 37 GB/s instead of 21.
#if defined(__OPTIMIZE__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3")
#endif
#if !defined(XXH_INLINE_ALL)
#define XXH_INLINE_ALL
#include <xxhash.h>
#undef XXH_INLINE_ALL
#else
#include <xxhash.h>
#endif

namespace ZERO_NAMESPACE::detail {

ZERO_INLINE std::uint64_t checksum_of(std::span<std::byte const> bytes) noexcept {
    return XXH3_64bits(bytes.data(), bytes.size());
}

} // namespace ZERO_NAMESPACE::detail

#if defined(__OPTIMIZE__) && !defined(__clang__)
#pragma GCC pop_options
#endif

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE std::string checksum_text(std::uint64_t checksum) {
    std::byte bytes[8];
    for (std::size_t byte = 0; byte < 8; ++byte) {
        bytes[byte] = static_cast<std::byte>(checksum >> (56 - 8 * byte));
    }
    return to_hex(bytes);
}

ZERO_COLD_INLINE std::optional<std::uint64_t> checksum_from(std::string_view text) {
    std::byte bytes[8];
    if (!from_hex(text, bytes)) {
        return std::nullopt;
    }
    std::uint64_t checksum = 0;
    for (std::byte const byte : bytes) {
        checksum = checksum << 8U | std::to_integer<std::uint64_t>(byte);
    }
    return checksum;
}

struct Checksum::State {
    XXH3_state_t xxh3;
};

ZERO_COLD_INLINE Checksum::Checksum() : _state(new State) {
    XXH3_64bits_reset(&_state->xxh3);
}

ZERO_COLD_INLINE Checksum::~Checksum() = default;

ZERO_COLD_INLINE void Checksum::add(std::span<std::byte const> bytes) noexcept {
    XXH3_64bits_update(&_state->xxh3, bytes.data(), bytes.size());
}

ZERO_COLD_INLINE std::uint64_t Checksum::take() noexcept {
    std::uint64_t const value = XXH3_64bits_digest(&_state->xxh3);
    XXH3_64bits_reset(&_state->xxh3);
    return value;
}

} // namespace ZERO_NAMESPACE::detail
