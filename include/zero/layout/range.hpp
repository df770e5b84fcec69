#pragma once

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE {

/// @brief Elements [begin, end).
struct Range {
    std::size_t begin = 0; ///< the first
    std::size_t end = 0;   ///< one behind the last; not before `begin`

    /// @brief Elements in it.
    [[nodiscard]] constexpr std::size_t size() const noexcept { return end - begin; }

    /// @brief Whether there are none.
    [[nodiscard]] constexpr bool is_empty() const noexcept { return begin == end; }
    friend constexpr bool operator==(Range, Range) = default;
};

/// @brief The common part; empty (begin == end) when there is none.
constexpr Range intersection(Range a, Range b) noexcept {
    std::size_t const begin = detail::larger(a.begin, b.begin);
    return {begin, detail::larger(begin, detail::smaller(a.end, b.end))};
}

/// @brief The next multiple of a positive number that is not below the value.
constexpr std::size_t round_up(std::size_t value, std::size_t multiple) noexcept {
    return (value + multiple - 1) / multiple * multiple;
}
/// @brief The last multiple of a positive number that is not above the value.
constexpr std::size_t round_down(std::size_t value, std::size_t multiple) noexcept {
    return value / multiple * multiple;
}

} // namespace ZERO_NAMESPACE
