#pragma once

#include "../../core/detail/text.hpp"
#include "../../core/detail/throw_error.hpp"
#include "../../core/dtype.hpp"
#include "../../core/error.hpp"
#include "../collective_tag.hpp"
#include "collective_call.hpp"

#include <cstring>

namespace ZERO_NAMESPACE::detail {

ZERO_INLINE std::uint64_t hash_of(std::span<std::size_t const> cuts) noexcept {
    std::uint64_t hash = 14695981039346656037U;
    for (std::size_t const cut : cuts) {
        hash = (hash ^ cut) * 1099511628211U;
    }
    return hash;
}

ZERO_INLINE std::string describe(CollectiveTag const& tag) {
    std::string result = text({'\'', tag.what, ' ', tag.index, '\''});
    if (tag.parameter[0] != '\0') {
        result += text({", first parameter '", tag.parameter, '\''});
    }
    return tag.context[0] == '\0' ? result : result + text({", for ", tag.context});
}

ZERO_INLINE std::string describe(CollectiveCall const& call) {
    std::string result = text({name_of(call.kind), " of ", call.count, ' ', name_of(call.type),
                               " (", describe(call.tag), ", "});
    if (call.kind == CollectiveKind::broadcast) {
        result += text({"root ", call.detail});
    } else if (call.kind == CollectiveKind::integers) {
        std::size_t const sums = call.sums();
        result += call.detail >= CollectiveCall::detail_of(0)
                      ? text({"sum of ", sums, ", minimum of the others"})
                  : call.detail == static_cast<std::uint64_t>(IntegerReduction::sum)
                      ? std::string("sum")
                      : std::string("minimum");
    } else {
        // different numbers are enough to show that the cuts differ
        result += text({"cuts ", call.detail % 10000});
    }
    return result + ')';
}

ZERO_INLINE std::string describe(std::size_t first_rank, CollectiveCall const& first,
                                 std::size_t rank, CollectiveCall const& other) {
    auto const call_text = [&](std::size_t of, CollectiveCall const& call) {
        bool const is_named = first.tag.engine != other.tag.engine && call.tag.engine != 0;
        return text({"rank ", of, " called ", describe(call),
                     is_named ? text({" of engine ", call.tag.engine}) : std::string()});
    };
    return call_text(first_rank, first) + ", " + call_text(rank, other);
}

ZERO_COLD_INLINE std::vector<std::size_t> uniform_cuts(std::size_t world, std::size_t elements) {
    std::vector<std::size_t> cuts;
    for (std::size_t rank = 0; rank <= world; ++rank) {
        cuts.push_back(rank * elements);
    }
    return cuts;
}

ZERO_INLINE bool are_cuts(std::span<std::size_t const> cuts, std::size_t world) noexcept {
    bool are = cuts.size() == world + 1 && cuts[0] == 0;
    for (std::size_t rank = 0; are && rank < world; ++rank) {
        are = cuts[rank] <= cuts[rank + 1];
    }
    return are;
}

ZERO_INLINE void throw_mismatch(std::string_view difference) {
    throw_error<CollectiveMismatch>(
        {"zero: ", difference,
         "; every rank must make the same calls in the same order, for the same units (where a "
         "rank does not use one, skip(unit) in the forward pass, and skip(unit) and "
         "gradients_ready(unit) in the backward pass) and number of micro-steps, with the same "
         "learning rate and settings, of the same engine, and through the same JointStep or "
         "none."});
}

ZERO_COLD_INLINE void throw_second_thread(CollectiveTag const& tag) {
    throw_error<OutOfOrder>({"zero: a second thread calls the collective ", describe(tag),
                             " of a communicator while another thread is in one; give each "
                             "thread the communicator of its own rank."});
}

/// Packs the first characters of a text into words that are zero.
ZERO_INLINE void pack(char const* text, std::uint64_t* words,
                      std::size_t bytes = CallSignature::text_bytes) noexcept {
    for (std::size_t letter = 0; letter < bytes && text[letter] != '\0'; ++letter) {
        words[letter / 8] |= std::uint64_t{static_cast<unsigned char>(text[letter])}
                             << (letter % 8 * 8);
    }
}

ZERO_INLINE CallSignature::Words CallSignature::of(CollectiveCall const& call) noexcept {
    Words signature{std::uint64_t{call.tag.engine} << 16U
                        | static_cast<std::uint64_t>(call.kind) << 8U
                        | static_cast<std::uint64_t>(call.type),
                    call.count, call.detail, call.tag.index};
    pack(call.tag.what, signature.data() + text_begin);
    pack(call.tag.parameter, signature.data() + parameter_begin);
    pack(call.tag.context, signature.data() + context_begin, context_bytes);
    return signature;
}

ZERO_COLD_INLINE CallSignature::Words
CallSignature::of_compared(CollectiveTag const& tag) noexcept {
    Words signature = of({CollectiveKind::all_gather, DType::int64, words, 0, tag});
    signature.back() = 0;
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
    return {static_cast<CollectiveKind>(signature[0] >> 8U & 255U),
            static_cast<DType>(signature[0] & 255U),
            static_cast<std::size_t>(signature[1]),
            signature[2],
            {texts.what.data(), static_cast<std::size_t>(signature[3]), texts.parameter.data(),
             texts.context.data(), CollectivePurpose::other,
             static_cast<std::uint32_t>(signature[0] >> 16U)}};
}

ZERO_INLINE std::uint64_t CallSignature::hash_of(Words const& call, std::uint64_t number) noexcept {
    std::uint64_t hash = 14695981039346656037U ^ number;
    for (std::size_t word = 0; word < parameter_begin; ++word) {
        hash = (hash ^ call[word]) * 1099511628211U;
    }
    return hash ^ hash >> 32U;
}

ZERO_COLD_INLINE std::string CallSignature::text_of(std::uint64_t const* signature) {
    SignatureTexts texts;
    return describe(call_of(signature, texts));
}

ZERO_COLD_INLINE std::string CallSignature::difference(std::size_t first_rank,
                                                       std::uint64_t const* first, std::size_t rank,
                                                       std::uint64_t const* other) {
    SignatureTexts first_texts;
    SignatureTexts other_texts;
    return describe(first_rank, call_of(first, first_texts), rank, call_of(other, other_texts));
}

ZERO_COLD_INLINE std::string CallSignature::describe_call(Words const& call, std::uint64_t number) {
    return number == 0 ? "no collective so far"
                       : text({"collective ", number, ", ", text_of(call.data())});
}

ZERO_INLINE std::string CallSignature::first_difference(std::span<std::uint64_t const> signatures) {
    std::uint64_t const* const first = signatures.data();
    for (std::size_t rank = 1; rank < signatures.size() / words; ++rank) {
        std::uint64_t const* const other = first + rank * words;
        if (std::memcmp(first, other, parameter_begin * sizeof(*first)) != 0) {
            return difference(0, first, rank, other);
        }
    }
    return {};
}

ZERO_COLD_INLINE void CallSignature::require_equal(std::span<std::uint64_t const> signatures,
                                                   FunctionRef<> gather_again) {
    std::string const difference = first_difference(signatures);
    if (!difference.empty()) {
        try {
            gather_again();
        } catch (...) { // a peer has met the others and thrown
        }
        throw_mismatch(difference);
    }
}

} // namespace ZERO_NAMESPACE::detail
