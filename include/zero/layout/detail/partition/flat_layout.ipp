#pragma once

#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/text.hpp"
#include "../../../core/detail/throw_error.hpp"
#include "../../../core/error.hpp"
#include "../../../core/hash.hpp"
#include "../../flat_layout.hpp"

#include <string_view>
#include <utility>

namespace ZERO_NAMESPACE {

namespace detail {

ZERO_COLD_INLINE void append_unless_last(std::vector<std::size_t>& list, std::size_t value) {
    if (list.empty() || list.back() != value) {
        list.push_back(value);
    }
}

} // namespace detail

ZERO_COLD_INLINE FlatLayout::FlatLayout(std::vector<ParameterSpec> parameters, std::size_t world,
                                        std::vector<BucketPlan> buckets,
                                        std::vector<std::size_t> unit_order)
    : _world(world), _parameters(std::move(parameters)), _buckets(std::move(buckets)),
      _unit_order(std::move(unit_order)) {
    index_parameters();
    index_buckets();
    index_pieces();
}

ZERO_COLD_INLINE std::size_t FlatLayout::content(std::size_t bucket, Range extent) const {
    std::size_t sum = 0;
    for_slices(bucket, extent, [&](Piece const& slice) { sum += slice.elements; });
    return sum;
}

ZERO_INLINE bool FlatLayout::is_member(std::size_t unit, std::size_t parameter) const noexcept {
    return unit < units() && detail::contains_ascending(unit_parameters(unit), parameter);
}

ZERO_COLD_INLINE void FlatLayout::separate_gradients() noexcept {
    for (ParameterSpec& spec : _parameters) {
        bool const is_in_block = spec.gradient == GradientMemory::block;
        spec.gradient = is_in_block ? GradientMemory::caller : spec.gradient;
    }
}

ZERO_COLD_INLINE std::uint64_t FlatLayout::hash() const {
    Hash hash;
    hash.add(_world);
    for (std::size_t index = 0; index < _parameters.size(); ++index) {
        hash.add(parameter_hash(index));
    }
    for (std::size_t const unit : _unit_order) {
        hash.add(unit);
    }
    for (std::size_t bucket = 0; bucket < buckets(); ++bucket) {
        Cuts const cuts = this->cuts(bucket);
        for (std::size_t rank = 0; rank < cuts.size(); ++rank) {
            hash.add(cuts[rank]);
        }
        for (Piece const& piece : pieces(bucket)) {
            hash.add(piece.parameter).add(piece.parameter_begin).add(piece.bucket_begin);
        }
    }
    return hash.value();
}

ZERO_COLD_INLINE std::uint64_t FlatLayout::parameter_hash(std::size_t index) const {
    ParameterSpec const& spec = _parameters[index];
    Hash hash;
    hash.add(spec.elements)
        .add(spec.group)
        .add(spec.trainable)
        .add(spec.type)
        .add(spec.rows)
        .add(std::string_view(spec.name));
    for (std::size_t const unit : spec.units) {
        hash.add(unit);
    }
    if (!spec.shape.empty()) { // the text separates sizes from units
        hash.add(std::string_view("shape"));
        for (std::size_t const size : spec.shape) {
            hash.add(size);
        }
    }
    if (!spec.tile.of.empty()) {
        hash.add(std::string_view("tile of")).add(std::string_view(spec.tile.of));
        hash.add(spec.tile.begin).add(spec.tile.elements);
        for (std::size_t const size : spec.tile.shape) {
            hash.add(size);
        }
    }
    if (spec.counts_on != CountsOn::every_model_rank) {
        hash.add(std::string_view("counts on the first"));
    }
    return hash.value();
}

ZERO_COLD_INLINE void FlatLayout::index_parameters() {
    std::size_t next = 0;
    for (std::size_t index = 0; index < _parameters.size(); ++index) {
        _first_element.push_back(next);
        next += _parameters[index].elements;
        for (std::size_t const unit : _parameters[index].units) {
            if (unit >= _unit_parameters.size()) {
                _unit_parameters.resize(unit + 1);
            }
            _unit_parameters[unit].push_back(index);
        }
    }
    _parameter_buckets.resize(_parameters.size());
    _unit_buckets.resize(_unit_parameters.size());
    for (std::size_t unit = _unit_order.empty() ? units() : 0; unit-- > 0;) {
        _unit_order.push_back(unit);
    }
}

ZERO_COLD_INLINE void FlatLayout::index_buckets() {
    _bucket_begin.push_back(0);
    for (std::size_t bucket = 0; bucket < _buckets.size(); ++bucket) {
        _bucket_begin.push_back(_bucket_begin.back() + elements(bucket));
        _trainable_buckets += _buckets[bucket].trainable ? 1 : 0;
        for (Piece const& piece : _buckets[bucket].pieces) {
            detail::append_unless_last(_parameter_buckets[piece.parameter], bucket);
            for (std::size_t const unit : _parameters[piece.parameter].units) {
                detail::append_unless_last(_unit_buckets[unit], bucket);
            }
        }
    }
}

/// Counts the positions of each parameter and unit, turns the counts into offsets, and fills in the
/// positions.
ZERO_COLD_INLINE void FlatLayout::index_pieces() {
    _first_of_parameter.assign(_parameters.size() + 1, 0);
    _first_of_unit.assign(units() + 1, 0);
    for (auto const& bucket : _buckets) {
        for (Piece const& piece : bucket.pieces) {
            ++_first_of_parameter[piece.parameter];
            for (std::size_t const unit : _parameters[piece.parameter].units) {
                ++_first_of_unit[unit];
            }
        }
    }
    std::size_t end = 0; // each list is filled backwards, from its end
    for (std::size_t& first : _first_of_parameter) {
        first = end += first;
    }
    for (std::size_t& first : _first_of_unit) {
        first = end += first;
    }
    _positions.resize(end);
    for (std::size_t bucket = _buckets.size(); bucket-- > 0;) {
        for (std::size_t index = _buckets[bucket].pieces.size(); index-- > 0;) {
            std::size_t const parameter = _buckets[bucket].pieces[index].parameter;
            _positions[--_first_of_parameter[parameter]] = {bucket, index};
            for (std::size_t const unit : _parameters[parameter].units) {
                _positions[--_first_of_unit[unit]] = {bucket, index};
            }
        }
    }
}

ZERO_COLD_INLINE void FlatLayout::name_units(std::vector<std::string> names) {
    if (!names.empty() && names.size() != units()) {
        detail::throw_error<InvalidArgument>({"zero: unit_names has ", names.size(),
                                              " names, but the parameters name ", units(),
                                              " units; give one for each, or none."});
    }
    _unit_names = std::move(names);
}

ZERO_COLD_INLINE std::string FlatLayout::unit_text(std::size_t unit) const {
    return unit < _unit_names.size() ? detail::text({"unit ", unit, " ('", _unit_names[unit], "')"})
                                     : detail::text({"unit ", unit});
}

ZERO_COLD_INLINE std::string FlatLayout::bucket_text(std::size_t bucket) const {
    return pieces(bucket).empty()
               ? detail::text({"bucket ", bucket})
               : detail::text({"bucket ", bucket, " (first parameter '", first_name(bucket), "')"});
}

ZERO_INLINE char const* FlatLayout::first_name(std::size_t bucket) const noexcept {
    auto const& pieces = _buckets[bucket].pieces;
    return pieces.empty() ? "" : _parameters[pieces.front().parameter].name.c_str();
}

} // namespace ZERO_NAMESPACE
