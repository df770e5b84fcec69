#pragma once

#include "../../core/detail/namespace.hpp"

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

namespace ZERO_NAMESPACE::detail {

/// @brief A `std::span` that refuses a bare pointer with one sentence.
template <class T>
class BlockSpan : public std::span<T> {
public:
    // NOLINTBEGIN(google-explicit-constructor,bugprone-forwarding-reference-overload): as std::span
    constexpr BlockSpan() noexcept = default;
    constexpr BlockSpan(T* first, std::size_t elements) : std::span<T>(first, elements) {}

    template <class Range>
        requires(!std::is_pointer_v<std::remove_cvref_t<Range>>
                 && !std::is_base_of_v<BlockSpan, std::remove_cvref_t<Range>>
                 && std::is_convertible_v<Range &&, std::span<T>>)
    constexpr BlockSpan(Range&& range) : std::span<T>(std::forward<Range>(range)) {}

    template <class Pointer>
        requires(std::is_pointer_v<std::remove_cvref_t<Pointer>>)
    BlockSpan(Pointer&&) {
        static_assert(!std::is_pointer_v<std::remove_cvref_t<Pointer>>,
                      "zero: adopted_block needs the length of the block as well; write "
                      ".adopted_block = {pointer, elements}.");
    }
    // NOLINTEND(google-explicit-constructor,bugprone-forwarding-reference-overload)
};

} // namespace ZERO_NAMESPACE::detail
