#pragma once

#include "call_signature.hpp"

#include "../../core/dtype.hpp"

#include <cstring>

namespace ZERO_NAMESPACE::detail {

/// Packs the first characters of a text into words that are zero.
ZERO_INLINE void pack(char const* text, std::uint64_t* words,
                      std::size_t bytes = CallSignature::text_bytes) noexcept {
    for (std::size_t letter = 0; letter < bytes && text[letter] != '\0'; ++letter) {
        words[letter / 8] |= std::uint64_t{static_cast<unsigned char>(text[letter])}
                             << (letter % 8 * 8);
    }
}

ZERO_INLINE CallSignature::Words CallSignature::of(CollectiveCall const& call) noexcept {
    Words signature{static_cast<std::uint64_t>(call.kind) * 256
                        + static_cast<std::uint64_t>(call.type),
                    call.count, call.detail, call.tag.index};
    pack(call.tag.what, signature.data() + text_begin);
    pack(call.tag.parameter, signature.data() + parameter_begin);
    pack(call.tag.context, signature.data() + context_begin, context_bytes);
    return signature;
}

/// The texts of a signature, which end with a zero.
struct SignatureTexts {
    using Text = std::array<char, CallSignature::text_bytes + 1>;

    Text what{};
    Text parameter{};
    std::array<char, CallSignature::context_bytes + 1> context{};

    template <std::size_t Size>
    static void unpack(std::uint64_t const* words, std::array<char, Size>& text) noexcept {
        for (std::size_t letter = 0; letter < Size - 1; ++letter) {
            text[letter] = static_cast<char>(words[letter / 8] >> (letter % 8 * 8) & 255U);
        }
    }
};

/// The inverse of `CallSignature::of`; the tag of the result points into `texts`.
ZERO_INLINE CollectiveCall call_of(std::uint64_t const* signature, SignatureTexts& texts) noexcept {
    SignatureTexts::unpack(signature + CallSignature::text_begin, texts.what);
    SignatureTexts::unpack(signature + CallSignature::parameter_begin, texts.parameter);
    SignatureTexts::unpack(signature + CallSignature::context_begin, texts.context);
    return {static_cast<CollectiveKind>(signature[0] / 256),
            static_cast<DType>(signature[0] % 256),
            static_cast<std::size_t>(signature[1]),
            signature[2],
            {texts.what.data(), static_cast<std::size_t>(signature[3]), texts.parameter.data(),
             texts.context.data()}};
}

ZERO_COLD_INLINE std::string CallSignature::text_of(std::uint64_t const* signature) {
    SignatureTexts texts;
    return describe(call_of(signature, texts));
}

ZERO_INLINE std::string CallSignature::first_difference(std::span<std::uint64_t const> signatures) {
    std::uint64_t const* const first = signatures.data();
    for (std::size_t rank = 1; rank < signatures.size() / words; ++rank) {
        std::uint64_t const* const other = first + rank * words;
        if (std::memcmp(first, other, parameter_begin * sizeof(*first)) != 0) {
            SignatureTexts first_texts;
            SignatureTexts other_texts;
            return describe(call_of(first, first_texts), rank, call_of(other, other_texts));
        }
    }
    return {};
}

} // namespace ZERO_NAMESPACE::detail
