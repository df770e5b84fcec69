#pragma once

#include "../core/detail/namespace.hpp"
#include "flat_layout.hpp"
#include "partitioner.hpp"
#include "piece.hpp"

#include <cstddef>
#include <optional>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief An element by its parameter.
struct ModelElement {
    std::size_t parameter = 0; ///< index of the parameter
    std::size_t element = 0;   ///< element in the parameter

    friend constexpr bool operator==(ModelElement, ModelElement) = default;
};

/// @brief An element by its owner.
struct ShardElement {
    std::size_t rank = 0;   ///< the owner
    std::size_t offset = 0; ///< offset in the owner's shard of the type: its extents of all buckets
                            ///< of the type, in bucket order, padding included
    std::size_t type = 0;   ///< type of the parameter; each type has its own shards

    friend constexpr bool operator==(ShardElement, ShardElement) = default;
};

/// @brief Maps each element of the model to the rank that owns it and its offset there, and back.
///
/// It reads the layout, which must outlive it. Trainable buckets come first, so the offsets also
/// hold for states that exist only for trainable parameters. Memory: O(pieces + buckets * W).
class ShardMap {
public:
    /// @brief Indexes the layout. O(pieces * log(pieces) + buckets * W).
    explicit ShardMap(FlatLayout const& layout);
    explicit ShardMap(FlatLayout&&) = delete;

    /// @brief Returns the elements of a parameter type that a rank owns, padding included.
    /// @throws InvalidArgument if there is no such rank or type
    [[nodiscard]] std::size_t elements(std::size_t rank, std::size_t type = 0) const;

    /// @brief Returns the owner of an element and the offset there; `std::nullopt` for a frozen
    /// parameter of an adopted block, which has no owner. O(log(pieces) + log(W)).
    /// @throws InvalidArgument if the model has no such element
    [[nodiscard]] std::optional<ShardElement> owner(ModelElement where) const;

    /// @brief Returns the element at an offset of a shard; `std::nullopt` for padding.
    /// O(log(buckets) + log(pieces of a bucket)).
    /// @throws InvalidArgument if the rank owns no such offset
    [[nodiscard]] std::optional<ModelElement> element(ShardElement where) const;

private:
    struct BucketPiece {
        Piece piece;
        std::size_t bucket;
    };

    [[nodiscard]] std::vector<std::size_t> const& begins(std::size_t rank, std::size_t type) const;

    FlatLayout const* _layout;
    std::vector<std::vector<BucketPiece>> _pieces; // by parameter, in ascending order
    std::size_t _types = 1;
    std::vector<std::vector<std::size_t>> _begins; // by rank and type, then by bucket
};

} // namespace ZERO_NAMESPACE

#if !defined(ZERO_COMPILED)
#include "detail/partition/shard_map.ipp"
#endif
