#pragma once

#include "../core/detail/namespace.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief Where a tile lies: the name and shape of the whole parameter, and the offset of the tile
/// in it. A tile is a contiguous part that is gathered and reduced by itself. `tiles` fills it.
/// Register the tiles of a parameter consecutively, from its first element to its last.
struct Tile {
    std::string of{};                 ///< name of the parameter; empty: not a tile
    std::size_t begin = 0;            ///< offset of the tile in the parameter
    std::size_t elements = 0;         ///< elements of the whole parameter
    std::vector<std::size_t> shape{}; ///< shape of the whole parameter; empty: not given

    /// @brief Returns whether the registration is a tile after the first one of its parameter.
    [[nodiscard]] bool is_later() const noexcept { return !of.empty() && begin != 0; }

    friend bool operator==(Tile const&, Tile const&) = default;
};

} // namespace ZERO_NAMESPACE
