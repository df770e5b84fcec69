#pragma once

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE {

/// @brief A contiguous part of a parameter inside a bucket. Usually the whole parameter; in an
/// adopted block a bucket may hold a part of it.
struct Piece {
    std::size_t parameter = 0;       ///< index of the parameter
    std::size_t parameter_begin = 0; ///< first element in the parameter
    std::size_t bucket_begin = 0;    ///< first element in the bucket
    std::size_t elements = 0;        ///< length of the piece
};

/// @brief The position of a piece: `layout.pieces(bucket)[index]`. `FlatLayout` lists the
/// positions, so nothing searches a bucket.
struct PiecePosition {
    std::size_t bucket = 0; ///< the bucket that holds the piece
    std::size_t index = 0;  ///< index of the piece in the bucket
};

/// @brief The half-open range of elements [begin, end).
struct Range {
    std::size_t begin = 0; ///< first element
    std::size_t end = 0;   ///< one past the last element, at least `begin`

    /// @brief Returns the number of elements.
    [[nodiscard]] constexpr std::size_t size() const noexcept { return end - begin; }

    /// @brief Returns whether the range has no elements.
    [[nodiscard]] constexpr bool is_empty() const noexcept { return begin == end; }
    friend constexpr bool operator==(Range, Range) = default;
};

/// @brief Returns the elements in both ranges; an empty range if there are none.
constexpr Range intersection(Range a, Range b) noexcept {
    std::size_t const begin = detail::larger(a.begin, b.begin);
    return {begin, detail::larger(begin, detail::smaller(a.end, b.end))};
}

} // namespace ZERO_NAMESPACE
