#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../layout/piece_position.hpp"

#include <cstddef>
#include <span>

namespace ZERO_NAMESPACE::detail {

/// @brief Ascending indices of pieces of one bucket: all of them, or those at listed positions.
class PieceIndices {
public:
    /// @brief All pieces of a bucket that has `count`.
    explicit PieceIndices(std::size_t count) noexcept : _count(count) {}

    /// @param listed positions in one bucket, in ascending order
    explicit PieceIndices(std::span<PiecePosition const> listed) noexcept
        : _listed(listed.data()), _count(listed.size()) {}

    [[nodiscard]] std::size_t size() const noexcept { return _count; }
    [[nodiscard]] std::size_t operator[](std::size_t number) const noexcept {
        return _listed == nullptr ? number : _listed[number].index;
    }

private:
    PiecePosition const* _listed = nullptr;
    std::size_t _count;
};

} // namespace ZERO_NAMESPACE::detail
