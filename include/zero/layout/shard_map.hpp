#pragma once

#include "../core/error.hpp"
#include "flat_layout.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace zero {

/// @brief Where each bucket's extent starts when the extents of one rank lie one after the other, in bucket order, and the end of the last;
/// only buckets of one parameter type take room. O(buckets). Every sharded state lies in memory in this way.
inline std::vector<std::size_t> shard_begins(FlatLayout const& layout, std::size_t rank, std::size_t type = 0) {
    std::vector<std::size_t> begins{0};
    for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
        begins.push_back(begins.back() + (layout.bucket(bucket).type == type ? layout.extent(bucket, rank).size() : 0));
    }
    return begins;
}

/// @brief The same for whole buckets: where replicated states lie.
inline std::vector<std::size_t> replica_begins(FlatLayout const& layout, std::size_t type = 0) {
    std::vector<std::size_t> begins{0};
    for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
        begins.push_back(begins.back() + (layout.bucket(bucket).type == type ? layout.elements(bucket) : 0));
    }
    return begins;
}

/// @brief An element as the caller numbers it.
struct ModelElement {
    std::size_t parameter = 0;
    std::size_t element = 0; ///< counted inside the parameter

    friend constexpr bool operator==(ModelElement, ModelElement) = default;
};

/// @brief An element as its owner numbers it.
struct ShardElement {
    std::size_t rank = 0;
    std::size_t offset = 0; ///< counted through the rank's extents of all buckets of the type in bucket order, padding included
    std::size_t type = 0;   ///< of the parameter: each has shards of its own

    friend constexpr bool operator==(ShardElement, ShardElement) = default;
};

/// @brief Which rank owns an element and where in its shard it lies, and back. Pure; it reads the layout, which has to outlive it.
///
/// Trainable buckets come first, so the offsets are also those of states that have none for frozen parameters. Memory
/// O(pieces + buckets * W).
class ShardMap {
    struct Place {
        Piece piece;
        std::size_t bucket;
    };

    struct Itself {
        std::size_t operator()(std::size_t value) const noexcept { return value; }
    };

    /// @brief The last of the sorted `list` whose key is at most `value`, or the end if there is none.
    template <class List, class Key = Itself>
    static auto last_at_most(List const& list, std::size_t value, Key key = {}) {
        auto const after = std::upper_bound(list.begin(), list.end(), value, [&](std::size_t a, auto const& b) { return a < key(b); });
        return after == list.begin() ? list.end() : after - 1;
    }

public:
    /// O(pieces * log(pieces) + buckets * W).
    explicit ShardMap(FlatLayout const& layout) : _layout(&layout), _places(layout.parameters().size()) {
        for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
            _types = std::max(_types, layout.bucket(bucket).type + 1);
            for (Piece const& piece : layout.pieces(bucket)) {
                _places[piece.parameter].push_back({piece, bucket});
            }
        }
        for (std::size_t rank = 0; rank < layout.world(); ++rank) {
            for (std::size_t type = 0; type < _types; ++type) {
                _begins.push_back(shard_begins(layout, rank, type));
            }
        }
        for (auto& places : _places) {
            std::sort(places.begin(), places.end(),
                      [](Place const& a, Place const& b) { return a.piece.parameter_begin < b.piece.parameter_begin; });
        }
    }
    explicit ShardMap(FlatLayout&&) = delete;

    /// @brief Elements of a parameter type that a rank owns, padding included.
    [[nodiscard]] std::size_t elements(std::size_t rank, std::size_t type = 0) const { return begins(rank, type).back(); }

    /// @brief Who owns an element; nothing for a frozen parameter of an adopted block, which nobody owns. O(log(pieces) + log(W)).
    /// @throws InvalidArgument when the model has no such element
    [[nodiscard]] std::optional<ShardElement> owner(ModelElement where) const {
        if (where.parameter >= _places.size()) {
            throw InvalidArgument("zero: there is no parameter number " + std::to_string(where.parameter) + "; the layout has "
                                  + std::to_string(_places.size()) + ".");
        }
        ParameterSpec const& spec = _layout->parameter(where.parameter);
        if (where.element >= spec.elements) {
            throw InvalidArgument("zero: parameter '" + spec.name + "' has no element " + std::to_string(where.element) + "; it has "
                                  + std::to_string(spec.elements) + ".");
        }
        auto const& places = _places[where.parameter];
        if (places.empty()) {
            return std::nullopt;
        }
        Place const& place = *last_at_most(places, where.element, [](Place const& p) { return p.piece.parameter_begin; });
        std::size_t const index = place.piece.bucket_begin + (where.element - place.piece.parameter_begin);
        auto const cuts = _layout->cuts(place.bucket);
        auto const rank = static_cast<std::size_t>(last_at_most(cuts, index) - cuts.begin()); // of equal cuts the last: the extent is not empty
        return ShardElement{rank, begins(rank, spec.type)[place.bucket] + (index - cuts[rank]), spec.type};
    }

    /// @brief The element at an offset of a shard; nothing for padding. O(log(buckets) + log(pieces of a bucket)).
    /// @throws InvalidArgument when the rank owns no such offset
    [[nodiscard]] std::optional<ModelElement> element(ShardElement where) const {
        if (where.offset >= elements(where.rank, where.type)) {
            throw InvalidArgument("zero: rank " + std::to_string(where.rank) + " has no offset " + std::to_string(where.offset) + "; it owns "
                                  + std::to_string(elements(where.rank, where.type)) + " elements.");
        }
        auto const& begins = this->begins(where.rank, where.type);
        auto const bucket = static_cast<std::size_t>(last_at_most(begins, where.offset) - begins.begin());
        std::size_t const index = _layout->cuts(bucket)[where.rank] + (where.offset - begins[bucket]);
        auto const pieces = _layout->pieces(bucket);
        auto const piece = last_at_most(pieces, index, [](Piece const& p) { return p.bucket_begin; });
        if (piece == pieces.end() || index - piece->bucket_begin >= piece->elements) {
            return std::nullopt;
        }
        return ModelElement{piece->parameter, piece->parameter_begin + (index - piece->bucket_begin)};
    }

private:
    [[nodiscard]] std::vector<std::size_t> const& begins(std::size_t rank, std::size_t type) const {
        if (rank >= _layout->world() || type >= _types) {
            throw InvalidArgument("zero: there is no rank " + std::to_string(rank) + " with parameters of type number " + std::to_string(type)
                                  + "; the layout is for " + std::to_string(_layout->world()) + " ranks and " + std::to_string(_types) + " types.");
        }
        return _begins[rank * _types + type];
    }

    FlatLayout const* _layout;
    std::vector<std::vector<Place>> _places; // by parameter, in ascending order
    std::size_t _types = 1;
    std::vector<std::vector<std::size_t>> _begins; // by rank and type, then by bucket
};

} // namespace zero
