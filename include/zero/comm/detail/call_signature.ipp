#pragma once

#include "call_signature.hpp"

#include "../../core/dtype.hpp"

#include <cstring>

namespace ZERO_NAMESPACE::detail {

ZERO_INLINE CallSignature::Words CallSignature::of(CollectiveCall const& call) noexcept {
    Words signature{static_cast<std::uint64_t>(call.kind) * 256
                        + static_cast<std::uint64_t>(call.type),
                    call.count, call.detail, call.tag.index};
    for (std::size_t letter = 0; letter < text_bytes && call.tag.what[letter] != '\0'; ++letter) {
        signature[text_begin + letter / 8] |=
            std::uint64_t{static_cast<unsigned char>(call.tag.what[letter])} << (letter % 8 * 8);
    }
    return signature;
}

/// The inverse of `CallSignature::of`; the tag of the result points into `text`.
ZERO_INLINE CollectiveCall call_of(std::uint64_t const* signature,
                                   std::array<char, CallSignature::text_bytes + 1>& text) noexcept {
    for (std::size_t letter = 0; letter < CallSignature::text_bytes; ++letter) {
        text[letter] = static_cast<char>(
            signature[CallSignature::text_begin + letter / 8] >> (letter % 8 * 8) & 255U);
    }
    return {static_cast<CollectiveKind>(signature[0] / 256),
            static_cast<DType>(signature[0] % 256),
            static_cast<std::size_t>(signature[1]),
            signature[2],
            {text.data(), static_cast<std::size_t>(signature[3])}};
}

ZERO_INLINE std::string CallSignature::first_difference(std::span<std::uint64_t const> signatures) {
    std::uint64_t const* const first = signatures.data();
    for (std::size_t rank = 1; rank < signatures.size() / words; ++rank) {
        std::uint64_t const* const other = first + rank * words;
        if (std::memcmp(first, other, sizeof(Words)) != 0) {
            std::array<char, text_bytes + 1> first_text{};
            std::array<char, text_bytes + 1> other_text{};
            return describe(call_of(first, first_text), rank, call_of(other, other_text));
        }
    }
    return {};
}

} // namespace ZERO_NAMESPACE::detail
