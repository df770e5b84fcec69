#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/detail/text.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Where a parameter can be cut into tiles: between equal rows, which its first dimensions
/// count.
struct TileRows {
    std::size_t rows;
    std::size_t dimensions;
};

/// @brief Returns the rows of the fewest dimensions that give every tile the same number of rows;
/// if none do, those of the fewest that give every tile at least one row.
[[gnu::cold]] inline TileRows rows_of_tiles(std::size_t elements,
                                            std::vector<std::size_t> const& shape,
                                            std::size_t count) noexcept {
    TileRows found{elements, shape.size()};
    bool is_found = false;
    std::size_t rows = 1;
    for (std::size_t dimension = 0; dimension < shape.size(); ++dimension) {
        rows *= shape[dimension];
        if (rows != 0 && rows % count == 0) {
            return {rows, dimension + 1};
        }
        if (rows >= count && !is_found) {
            found = {rows, dimension + 1};
            is_found = true;
        }
    }
    return found;
}

/// @brief Returns the name of a tile, like that of a part of a tensor in a data file. No template:
/// nvcc 13 rejects the list of texts inside one.
[[gnu::cold]] inline std::string tile_name(std::string const& parameter, std::size_t begin,
                                           std::size_t end) {
    return text({parameter, "[", begin, ":", end, "]"});
}

} // namespace ZERO_NAMESPACE::detail
