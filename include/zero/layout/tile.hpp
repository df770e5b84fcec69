#pragma once

#include "../core/detail/namespace.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief Says of which parameter a registration is a tile: a contiguous part that is gathered and
/// reduced by itself. `tiles` fills it. Tiles of one parameter are registered one after the other,
/// from its first element to its last.
struct Tile {
    std::string of{};                 ///< name of the parameter; empty: this is no tile
    std::size_t begin = 0;            ///< offset of the tile in the parameter
    std::size_t elements = 0;         ///< of the whole parameter
    std::vector<std::size_t> shape{}; ///< of the whole parameter; empty: not given

    /// @brief Whether the registration is a tile behind the first one of its parameter.
    [[nodiscard]] bool is_later() const noexcept { return !of.empty() && begin != 0; }

    friend bool operator==(Tile const&, Tile const&) = default;
};

} // namespace ZERO_NAMESPACE
