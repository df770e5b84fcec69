#pragma once

#include "../../core/detail/namespace.hpp"

#include <span>
#include <type_traits>

namespace ZERO_NAMESPACE::detail {

/// @brief A `std::span` that refuses a bare pointer with one sentence.
template <class T>
class BlockSpan : public std::span<T> {
public:
    using std::span<T>::span;
    // NOLINTNEXTLINE(google-explicit-constructor): it is one
    constexpr BlockSpan(std::span<T> block) noexcept : std::span<T>(block) {}

    template <class Pointer>
        requires(std::is_pointer_v<std::remove_cvref_t<Pointer>>)
    // NOLINTNEXTLINE(google-explicit-constructor): as std::span
    BlockSpan(Pointer&&) {
        static_assert(!std::is_pointer_v<std::remove_cvref_t<Pointer>>,
                      "zero: adopted_block needs the length of the block as well; write "
                      ".adopted_block = {pointer, elements}.");
    }
};

} // namespace ZERO_NAMESPACE::detail
