#pragma once

#include "../core/detail/namespace.hpp"
#include "gradient_memory.hpp"
#include "tile.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief How an optimizer with a rule of its own for matrices (`Muon`) updates a parameter.
enum class Update : std::uint8_t {
    elements, ///< element by element: biases, norms, embeddings, output heads
    matrix    ///< as one row-major matrix
};

/// @brief A parameter as the layout sees it. It must be the same on every rank.
struct ParameterSpec {
    std::string name;                  ///< unique
    std::size_t elements = 0;          ///< may be 0
    std::vector<std::size_t> units{0}; ///< the units that use it, numbered from 0 in order of use;
                                       ///< a tied parameter lists several
    std::size_t group = 0;             ///< index of its group, which shares hyper-parameters
    bool trainable = true; ///< false: frozen, without gradient, master weights and optimizer state
    std::size_t type = 0;  ///< index of its type in the model; a bucket holds one type
    std::size_t rows = 0;  ///< rows of its row-major matrix; 0: it is not a matrix
    GradientMemory gradient = GradientMemory::engine; ///< ranks may differ in `engine` and `caller`
    std::vector<std::size_t> shape{}; ///< sizes of its dimensions, row-major; empty: not given
    Tile tile{};                      ///< the parameter that it is a tile of, if any
    std::optional<Update> update{};   ///< chosen by `update` or `rows` of the registration; in a
                                      ///< layout for `Muon` every trainable parameter has it
};

} // namespace ZERO_NAMESPACE
