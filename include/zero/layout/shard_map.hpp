#pragma once

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/error.hpp"
#include "detail/order_by.hpp"
#include "flat_layout.hpp"
#include "parameter_spec.hpp"
#include "piece.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief Where each bucket's extent starts when the extents of one rank lie one after the other,
/// in bucket order, and the end of the last; only buckets of one parameter type take room.
/// O(buckets). Every sharded state lies in memory in this way.
inline std::vector<std::size_t> shard_begins(FlatLayout const& layout, std::size_t rank,
                                             std::size_t type = 0) {
    std::vector<std::size_t> begins{0};
    for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
        begins.push_back(
            begins.back()
            + (layout.bucket(bucket).type == type ? layout.extent(bucket, rank).size() : 0));
    }
    return begins;
}

/// @brief The same for whole buckets: where replicated states lie.
inline std::vector<std::size_t> replica_begins(FlatLayout const& layout, std::size_t type = 0) {
    std::vector<std::size_t> begins{0};
    for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
        begins.push_back(begins.back()
                         + (layout.bucket(bucket).type == type ? layout.elements(bucket) : 0));
    }
    return begins;
}

/// @brief An element as the caller numbers it.
struct ModelElement {
    std::size_t parameter = 0; ///< number of registration
    std::size_t element = 0;   ///< counted inside the parameter

    friend constexpr bool operator==(ModelElement, ModelElement) = default;
};

/// @brief An element as its owner numbers it.
struct ShardElement {
    std::size_t rank = 0;   ///< the owner
    std::size_t offset = 0; ///< counted through the rank's extents of all buckets of the type in
                            ///< bucket order, padding included
    std::size_t type = 0;   ///< of the parameter: each has shards of its own

    friend constexpr bool operator==(ShardElement, ShardElement) = default;
};

/// @brief Which rank owns an element and where in its shard it lies, and back. Pure; it reads the
/// layout, which has to outlive it.
///
/// Trainable buckets come first, so the offsets are also those of states that have none for frozen
/// parameters. Memory O(pieces + buckets * W).
class ShardMap {
    struct Place {
        Piece piece;
        std::size_t bucket;
    };

    struct Itself {
        std::size_t operator()(std::size_t value) const noexcept { return value; }
    };

    /// @brief The index of the last of the sorted `list` whose key is at most `value`, or its size
    /// if there is none.
    template <class List, class Key = Itself>
    static std::size_t last_at_most(List const& list, std::size_t value, Key key = {}) {
        std::size_t below = 0; // the elements before it have a key that is at most `value`
        for (std::size_t count = list.size(); count != 0;) {
            std::size_t const half = count / 2;
            bool const is_after = !(value < key(list[below + half]));
            below += is_after ? half + 1 : 0;
            count = is_after ? count - half - 1 : half;
        }
        return below == 0 ? list.size() : below - 1;
    }

public:
    /// O(pieces * log(pieces) + buckets * W).
    explicit ShardMap(FlatLayout const& layout)
        : _layout(&layout), _places(layout.parameters().size()) {
        for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
            _types = detail::larger(_types, layout.bucket(bucket).type + 1);
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
            sort(places);
        }
    }
    explicit ShardMap(FlatLayout&&) = delete;

    /// @brief Elements of a parameter type that a rank owns, padding included.
    [[nodiscard]] std::size_t elements(std::size_t rank, std::size_t type = 0) const {
        return begins(rank, type).back();
    }

    /// @brief Who owns an element; nothing for a frozen parameter of an adopted block, which nobody
    /// owns. O(log(pieces) + log(W)).
    /// @throws InvalidArgument when the model has no such element
    [[nodiscard]] std::optional<ShardElement> owner(ModelElement where) const {
        if (where.parameter >= _places.size()) {
            detail::throw_error<InvalidArgument>({"zero: there is no parameter number ",
                                                  where.parameter, "; the layout has ",
                                                  _places.size(), "."});
        }
        ParameterSpec const& spec = _layout->parameter(where.parameter);
        if (where.element >= spec.elements) {
            detail::throw_error<InvalidArgument>({"zero: parameter '", spec.name,
                                                  "' has no element ", where.element, "; it has ",
                                                  spec.elements, "."});
        }
        auto const& places = _places[where.parameter];
        if (places.empty()) {
            return std::nullopt;
        }
        Place const& place = places[last_at_most(
            places, where.element, [](Place const& p) { return p.piece.parameter_begin; })];
        std::size_t const index =
            place.piece.bucket_begin + (where.element - place.piece.parameter_begin);
        auto const cuts = _layout->cuts(place.bucket);
        std::size_t const rank =
            last_at_most(cuts, index); // of equal cuts the last: the extent is not empty
        return ShardElement{rank, begins(rank, spec.type)[place.bucket] + (index - cuts[rank]),
                            spec.type};
    }

    /// @brief The element at an offset of a shard; nothing for padding. O(log(buckets) + log(pieces
    /// of a bucket)).
    /// @throws InvalidArgument when the rank owns no such offset
    [[nodiscard]] std::optional<ModelElement> element(ShardElement where) const {
        if (where.offset >= elements(where.rank, where.type)) {
            detail::throw_error<InvalidArgument>({"zero: rank ", where.rank, " has no offset ",
                                                  where.offset, "; it owns ",
                                                  elements(where.rank, where.type), " elements."});
        }
        auto const& begins = this->begins(where.rank, where.type);
        std::size_t const bucket = last_at_most(begins, where.offset);
        std::size_t const index =
            _layout->cuts(bucket)[where.rank] + (where.offset - begins[bucket]);
        auto const pieces = _layout->pieces(bucket);
        std::size_t const last =
            last_at_most(pieces, index, [](Piece const& p) { return p.bucket_begin; });
        if (last == pieces.size() || index - pieces[last].bucket_begin >= pieces[last].elements) {
            return std::nullopt;
        }
        Piece const& piece = pieces[last];
        return ModelElement{piece.parameter, piece.parameter_begin + (index - piece.bucket_begin)};
    }

private:
    static void sort(std::vector<Place>& places) {
        std::vector<std::uint64_t> begins;
        begins.reserve(places.size());
        for (Place const& place : places) {
            begins.push_back(place.piece.parameter_begin);
        }
        std::vector<Place> sorted;
        for (std::size_t const index : detail::order_by(begins)) {
            sorted.push_back(places[index]);
        }
        places.swap(sorted);
    }

    [[nodiscard]] std::vector<std::size_t> const& begins(std::size_t rank, std::size_t type) const {
        if (rank >= _layout->world() || type >= _types) {
            detail::throw_error<InvalidArgument>(
                {"zero: there is no rank ", rank, " with parameters of type number ", type,
                 "; the layout is for ", _layout->world(), " ranks and ", _types, " types."});
        }
        return _begins[rank * _types + type];
    }

    FlatLayout const* _layout;
    std::vector<std::vector<Place>> _places; // by parameter, in ascending order
    std::size_t _types = 1;
    std::vector<std::vector<std::size_t>> _begins; // by rank and type, then by bucket
};

} // namespace ZERO_NAMESPACE
