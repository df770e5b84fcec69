#pragma once

#include "../../core/detail/namespace.hpp"
#include "collective_call.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace ZERO_NAMESPACE::detail {

/// @brief A collective call as words that ranks exchange. Used by `Checked`: kind and type, count,
/// detail, index, the first 32 characters of the tag's text and of its parameter, and the first 96
/// of its context. The context is not compared.
class CallSignature {
public:
    static constexpr std::size_t text_begin = 4;  ///< offset in words
    static constexpr std::size_t text_bytes = 32; ///< bytes of `what` and of `parameter`
    static constexpr std::size_t parameter_begin = text_begin + text_bytes / 8;    ///< in words
    static constexpr std::size_t context_begin = parameter_begin + text_bytes / 8; ///< in words
    static constexpr std::size_t context_bytes = 96;
    static constexpr std::size_t words =
        context_begin + context_bytes / 8;          ///< length of a signature
    using Words = std::array<std::uint64_t, words>; ///< as they are sent

    /// @brief Returns the words of a call.
    static Words of(CollectiveCall const& call) noexcept;

    /// @brief Compares the signatures of all ranks, which lie in rank order. Returns a text about
    /// the first one that differs from rank 0's; empty if all are equal.
    static std::string first_difference(std::span<std::uint64_t const> signatures);

    /// @brief Returns the text of the call with this signature, as `describe` gives it.
    static std::string text_of(std::uint64_t const* signature);
};

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "call_signature.ipp"
#endif
