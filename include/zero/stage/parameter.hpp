#pragma once

#include "../core/detail/namespace.hpp"
#include "../layout/parameter_spec.hpp"
#include "../layout/tile.hpp"
#include "detail/typed_pointer.hpp"
#include "initialiser.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief One parameter as the caller registers it. The caller's model needs no change.
///
/// Register parameters in their order of use in the forward pass. Names, sizes, units, groups and
/// trainability must be the same on every rank. The values of rank 0 are broadcast to all ranks,
/// unless every rank may compute them (`is_deterministic`).
///
/// Memory that the engine reads once is `initial`; memory that it uses for training is `data`. An
/// engine that owns its parameters (`Storage::owned`) would train a copy of `data`, and stage 3
/// keeps shards only, so both refuse it with InvalidArgument.
/// @tparam T type of the parameters, @tparam G type of the gradients
template <class T, class G = T>
struct Parameter {
    std::string name;                        ///< unique
    detail::TypedPointer<T const> initial{}; ///< initial values of an owned parameter, read during
                                             ///< construction only; several may begin at the same
                                             ///< address; null: zeros
    detail::TypedPointer<T> data{}; ///< for adopted or scattered storage: the memory in which the
                                    ///< parameter lies and stays. Owned storage refuses it, in
                                    ///< every stage
    std::size_t elements = 0;       ///< any number, 0 included
    std::vector<std::size_t> units{0}; ///< the units that use it, numbered in order of use from 0;
                                       ///< several for a tied parameter
    std::size_t group = 0; ///< parameter group: an index into options.groups; if that is empty,
                           ///< less than the number of parameters
    bool trainable = true; ///< false: frozen, without gradient and optimizer state
    std::size_t rows = 0;  ///< rows of the row-major matrix that its elements form, for optimizers
                           ///< of whole parameters: the product of the first dimensions of `shape`,
                           ///< if that is given; 0: not a matrix, or the first dimension
    detail::TypedPointer<G> gradient{}; ///< caller-owned memory for its gradient, which is read
                                        ///< only in micro-steps that call `gradients` or
                                        ///< `gradients_ready` for its unit; null: the gradient lies
                                        ///< in the engine's buckets, without a copy. Null if frozen
    /// Sizes of its dimensions, row-major, for checkpoints. Optional; if given, `elements` may be
    /// left out, and the `rows` of a matrix as well.
    std::vector<std::size_t> shape{};
    /// Fills elements [begin, begin + values.size()) of an owned parameter. Called on rank 0
    /// instead of reading `initial`, which must then be null. An exception that it throws leaves
    /// the constructor, and the other ranks throw Aborted with its text.
    Initialiser<T> initialise{};
    /// Whether `initialise` gives each element the same value on every rank and in every call: as a
    /// function of the element's number (`ops::uniform`), or from a file that every rank can read.
    /// Without `initialise` the values are zeros. Each rank calls it for what it owns, at any
    /// `begin`, several ranks at the same time. Nothing is sent in stage 3; stages 0 to 2 gather
    /// the results. Buckets that also hold other parameters are filled on rank 0 and sent. Pass
    /// the same on every rank.
    bool is_deterministic = false;
    /// Whether `Muon` orthogonalises it; default: the choice of its group, or `matrix` with `rows`.
    /// A `shape` of two dimensions needs a choice, because embeddings have one as well. With other
    /// optimizers it has no effect.
    std::optional<Update> update{};
    Tile tile{}; ///< set by `tiles`: the parameter that it is a part of
};

} // namespace ZERO_NAMESPACE
