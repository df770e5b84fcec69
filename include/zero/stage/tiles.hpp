#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/detail/text.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/error.hpp"
#include "../layout/detail/partition/shape.hpp"
#include "parameter.hpp"

#include <cstddef>
#include <span>
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

/// @brief Returns the name of a tile, like that of a part of a tensor in a data file. Not a
/// template, because nvcc 13 rejects the list of texts inside one.
[[gnu::cold]] inline std::string tile_name(std::string const& parameter, std::size_t begin,
                                           std::size_t end) {
    return text({parameter, "[", begin, ":", end, "]"});
}

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief Registers one parameter in tiles: contiguous parts in units of their own, so that stage 3
/// gathers and reduces one part of a large tensor at a time. Append the result to the list of
/// registrations in place of the parameter.
///
/// Checkpoints, files of parameters, and gradient norms see one parameter with its name and shape;
/// a checkpoint can be loaded with another number of tiles, or without. For the engine each tile is
/// a parameter, named like a part of a tensor in a data file: "weight[128:256]". Training gives the
/// same bits as the whole parameter. Initial values, `data` and `gradient` are those of the whole.
///
/// Tiles are cut between rows: along the first dimensions whose product is a multiple of `count`,
/// otherwise as evenly as rows allow. To cut a matrix of `out` x `in` along its inputs as well,
/// store it as {splits, out, in / splits}. With `BlockScaledState` each tile must begin at a
/// multiple of 64 elements.
/// @param whole the parameter; its `units` list one unit for each tile, or the unit of the first
/// tile, from which the others are numbered
/// @param count number of tiles, from 1 (the parameter itself) to the number of elements
/// @throws InvalidArgument for another count, or another number of units. An engine refuses tiles
/// if its optimizer needs whole parameters, or if they cut blocks of `BlockScaledState`
template <class T, class G>
[[nodiscard]] std::vector<Parameter<T, G>> tiles(Parameter<T, G> const& whole, std::size_t count) {
    std::size_t const elements = detail::elements_of(whole.elements, whole.shape);
    if (count == 0 || count > elements) {
        detail::throw_error<InvalidArgument>({"zero: parameter '", whole.name, "' of ", elements,
                                              " elements cannot be cut into ", count,
                                              " tiles; each needs an element."});
    }
    if (whole.units.size() != 1 && whole.units.size() != count) {
        detail::throw_error<InvalidArgument>(
            {"zero: parameter '", whole.name, "' in ", count, " tiles lists ", whole.units.size(),
             " units; list one for each tile, or the first one only."});
    }
    if (count == 1) {
        return {whole};
    }
    std::vector<std::size_t> shape = whole.shape;
    if (shape.empty() && whole.rows != 0 && elements % whole.rows == 0) {
        shape = {whole.rows, elements / whole.rows};
    }
    auto const cut = detail::rows_of_tiles(elements, shape, count);
    std::size_t const row = elements / cut.rows;
    std::vector<Parameter<T, G>> parts;
    for (std::size_t tile = 0; tile < count; ++tile) {
        std::size_t const first = tile * cut.rows / count;
        std::size_t const rows = (tile + 1) * cut.rows / count - first;
        std::size_t const begin = first * row;
        Parameter<T, G>& part = parts.emplace_back(whole);
        part.name = detail::tile_name(whole.name, begin, begin + rows * row);
        part.elements = rows * row;
        part.units = {whole.units.size() == 1 ? whole.units.front() + tile : whole.units[tile]};
        part.rows = 0;
        if (!shape.empty()) {
            part.shape.assign(1, rows);
            for (std::size_t d = cut.dimensions; d < shape.size(); ++d) {
                part.shape.push_back(shape[d]);
            }
        }
        if (whole.initial != nullptr) {
            part.initial = whole.initial.get() + begin;
        }
        if (whole.data != nullptr) {
            part.data = whole.data.get() + begin;
        }
        if (whole.gradient != nullptr) {
            part.gradient = whole.gradient.get() + begin;
        }
        if (whole.initialise) {
            part.initialise = [fill = whole.initialise, begin](std::size_t at,
                                                               std::span<T> values) {
                fill(begin + at, values);
            };
        }
        part.tile = {whole.name, begin, elements, whole.shape};
    }
    return parts;
}

} // namespace ZERO_NAMESPACE
