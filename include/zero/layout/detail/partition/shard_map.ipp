#pragma once

#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/throw_error.hpp"
#include "../../../core/error.hpp"
#include "../../parameter_spec.hpp"
#include "../../shard_map.hpp"
#include "order_by.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE {

namespace detail {

/// @brief Returns the index of the last of `count` ascending keys that is at most `value`, or
/// `count` if there is none.
/// @param key_at called with an index
template <class KeyAt>
std::size_t last_at_most(std::size_t count, std::size_t value, KeyAt key_at) {
    std::size_t below = 0; // all keys before it are at most `value`
    for (std::size_t left = count; left != 0;) {
        std::size_t const half = left / 2;
        bool const is_after = !(value < key_at(below + half));
        below += is_after ? half + 1 : 0;
        left = is_after ? left - half - 1 : half;
    }
    return below == 0 ? count : below - 1;
}

} // namespace detail

ZERO_COLD_INLINE ShardMap::ShardMap(FlatLayout const& layout)
    : _layout(&layout), _pieces(layout.parameters().size()) {
    for (std::size_t bucket = 0; bucket < layout.buckets(); ++bucket) {
        _types = detail::larger(_types, layout.bucket(bucket).type + 1);
        for (Piece const& piece : layout.pieces(bucket)) {
            _pieces[piece.parameter].push_back({piece, bucket});
        }
    }
    for (std::size_t rank = 0; rank < layout.world(); ++rank) {
        for (std::size_t type = 0; type < _types; ++type) {
            _begins.push_back(shard_begins(layout, rank, type));
        }
    }
    for (auto& pieces : _pieces) {
        pieces = detail::sorted_by(detail::as_span(pieces), [](BucketPiece const& found) {
            return found.piece.parameter_begin;
        });
    }
}

ZERO_COLD_INLINE std::size_t ShardMap::elements(std::size_t rank, std::size_t type) const {
    return begins(rank, type).back();
}

ZERO_COLD_INLINE std::optional<ShardElement> ShardMap::owner(ModelElement where) const {
    if (where.parameter >= _pieces.size()) {
        detail::throw_error<InvalidArgument>({"zero: there is no parameter number ",
                                              where.parameter, "; the layout has ", _pieces.size(),
                                              "."});
    }
    ParameterSpec const& spec = _layout->parameter(where.parameter);
    if (where.element >= spec.elements) {
        detail::throw_error<InvalidArgument>({"zero: parameter '", spec.name, "' has no element ",
                                              where.element, "; it has ", spec.elements, "."});
    }
    auto const& pieces = _pieces[where.parameter];
    if (pieces.empty()) {
        return std::nullopt;
    }
    BucketPiece const& found =
        pieces[detail::last_at_most(pieces.size(), where.element, [&](std::size_t index) {
            return pieces[index].piece.parameter_begin;
        })];
    std::size_t const offset =
        found.piece.bucket_begin + (where.element - found.piece.parameter_begin);
    auto const cuts = _layout->cuts(found.bucket);
    // The last of equal cuts is taken, so the extent is not empty.
    std::size_t const rank =
        detail::last_at_most(cuts.size(), offset, [&](std::size_t index) { return cuts[index]; });
    return ShardElement{rank, begins(rank, spec.type)[found.bucket] + (offset - cuts[rank]),
                        spec.type};
}

ZERO_COLD_INLINE std::optional<ModelElement> ShardMap::element(ShardElement where) const {
    if (where.offset >= elements(where.rank, where.type)) {
        detail::throw_error<InvalidArgument>({"zero: rank ", where.rank, " has no offset ",
                                              where.offset, "; it owns ",
                                              elements(where.rank, where.type), " elements."});
    }
    auto const& begins = this->begins(where.rank, where.type);
    std::size_t const bucket = detail::last_at_most(
        begins.size(), where.offset, [&](std::size_t index) { return begins[index]; });
    std::size_t const offset = _layout->cuts(bucket)[where.rank] + (where.offset - begins[bucket]);
    auto const pieces = _layout->pieces(bucket);
    std::size_t const last = detail::last_at_most(
        pieces.size(), offset, [&](std::size_t index) { return pieces[index].bucket_begin; });
    if (last == pieces.size() || offset - pieces[last].bucket_begin >= pieces[last].elements) {
        return std::nullopt;
    }
    Piece const& piece = pieces[last];
    return ModelElement{piece.parameter, piece.parameter_begin + (offset - piece.bucket_begin)};
}

ZERO_COLD_INLINE std::vector<std::size_t> const& ShardMap::begins(std::size_t rank,
                                                                  std::size_t type) const {
    if (rank >= _layout->world() || type >= _types) {
        detail::throw_error<InvalidArgument>(
            {"zero: there is no rank ", rank, " with parameters of type number ", type,
             "; the layout is for ", _layout->world(), " ranks and ", _types, " types."});
    }
    return _begins[rank * _types + type];
}

} // namespace ZERO_NAMESPACE
