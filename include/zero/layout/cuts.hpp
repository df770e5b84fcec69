#pragma once

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief The W + 1 ascending offsets where a bucket is cut into extents: rank r owns
/// [cuts[r], cuts[r + 1]).
///
/// A view of 24 bytes. It is valid as long as the layout or list it comes from. Equal extents are
/// computed instead of listed, so they take no memory per rank. `CutList` lists the offsets as
/// collectives take them.
class Cuts {
public:
    /// @brief An empty list of offsets.
    constexpr Cuts() = default;

    /// @brief The listed offsets, at least one.
    constexpr Cuts(std::span<std::size_t const> offsets) noexcept // NOLINT(*-explicit-*): a view
        : _offsets(offsets.data()), _size(offsets.size()) {}

    /// @brief Returns the cuts of `world` equal extents.
    static constexpr Cuts even(std::size_t world, std::size_t extent) noexcept {
        Cuts cuts;
        cuts._extent = extent;
        cuts._size = world + 1;
        return cuts;
    }

    /// @brief Returns W + 1.
    [[nodiscard]] constexpr std::size_t size() const noexcept { return _size; }

    /// @brief Returns the offset where the extent of a rank begins; for rank W, the end of the
    /// bucket.
    [[nodiscard]] constexpr std::size_t operator[](std::size_t rank) const noexcept {
        return is_even() ? rank * _extent : _offsets[rank];
    }

    /// @brief Returns the end of the bucket.
    [[nodiscard]] constexpr std::size_t back() const noexcept { return (*this)[_size - 1]; }

    /// @brief Returns whether the extents are equal by construction, and not listed.
    [[nodiscard]] constexpr bool is_even() const noexcept { return _offsets == nullptr; }

    /// @brief Returns the listed offsets; empty if `is_even`.
    [[nodiscard]] constexpr std::span<std::size_t const> listed() const noexcept {
        return {_offsets, is_even() ? 0 : _size};
    }

    /// @brief Returns the rank whose extent contains an element of the bucket. O(1) if `is_even`,
    /// otherwise O(W).
    /// @param first the owner or a rank before it
    [[nodiscard]] constexpr std::size_t owner(std::size_t offset,
                                              std::size_t first = 0) const noexcept {
        if (is_even()) {
            return offset / _extent;
        }
        while (_offsets[first + 1] <= offset) {
            ++first;
        }
        return first;
    }

private:
    std::size_t const* _offsets = nullptr;
    std::size_t _extent = 0;
    std::size_t _size = 0;
};

/// @brief Lists the cuts of a bucket for a collective. Owns the memory for W + 1 offsets.
class CutList {
public:
    /// @param world number of ranks
    explicit CutList(std::size_t world) : _offsets(world + 1, 0) {}

    /// @brief Returns the offsets. They are valid until the next call, and no longer than `cuts`.
    ///
    /// No call allocates. O(W) for equal extents of a different length from the last call,
    /// otherwise O(1).
    [[nodiscard]] [[gnu::always_inline]] std::span<std::size_t const> of(Cuts cuts) noexcept {
        if (!cuts.is_even()) {
            return cuts.listed();
        }
        if (_offsets.back() != cuts.back()) {
            for (std::size_t rank = 0; rank < _offsets.size(); ++rank) {
                _offsets[rank] = cuts[rank];
            }
        }
        return detail::as_span(_offsets);
    }

private:
    std::vector<std::size_t> _offsets; ///< cuts of the last equal extents
};

} // namespace ZERO_NAMESPACE
