#pragma once

#include "../core/detail/namespace.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief The memory into which the backward pass writes the gradient of a parameter.
enum class GradientMemory : std::uint8_t {
    engine, ///< leased from the engine
    caller, ///< caller-owned, anywhere
    block   ///< caller-owned, at the same offset in one block of gradients as the parameter in the
            ///< adopted block, on every rank; reduced in place
};

/// @brief Where a tile is: the name and shape of the whole parameter, and the offset of the tile
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

/// @brief How an optimizer with a rule of its own for matrices (`Muon`) updates a parameter.
enum class Update : std::uint8_t {
    elements, ///< element by element: biases, norms, embeddings, output heads
    matrix    ///< as one row-major matrix
};

/// @brief Which of the ranks that one copy of a model is cut over count a parameter in norms. See
/// `Groups<C, ModelParallel>`.
enum class CountsOn : std::uint8_t {
    every_model_rank, ///< each that registers the name: they hold different elements
    first_model_rank  ///< the first that registers the name: the others hold replicas, such as a
                      ///< layer norm of tensor ranks, or a tied embedding of two pipeline ranks
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
    CountsOn counts_on = CountsOn::every_model_rank; ///< of ranks that share a copy of the model
};

/// @brief The memory that holds the parameters, and its owner.
enum class Storage : std::uint8_t {
    owned,    ///< in memory of the engine, which hands out pointers
    adopted,  ///< in one contiguous caller-owned block, communicated in place (stages 0 to 2)
    scattered ///< in caller-owned tensors anywhere, copied after the all-gather (stages 0 to 2)
};

} // namespace ZERO_NAMESPACE
