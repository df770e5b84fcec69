#pragma once

#include "../core/detail/namespace.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief The parameter of which a registration is a tile: a contiguous part that is gathered and
/// reduced by itself. `tiles` fills it. Tiles of one parameter are registered one after the other,
/// from its first element to its last.
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
