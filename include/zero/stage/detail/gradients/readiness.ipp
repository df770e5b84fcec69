#pragma once

#include "readiness.hpp"

#include <utility>

namespace ZERO_NAMESPACE::detail {

ZERO_INLINE Readiness::Readiness(FlatLayout const& layout)
    : _layout(&layout), _is_unit_ready(layout.units()), _units_left(layout.parameters().size()),
      _parameters_left(layout.trainable_buckets()), _is_launched(layout.trainable_buckets()) {
    reset();
}

ZERO_INLINE void Readiness::reset() {
    _is_unit_ready.assign(_is_unit_ready.size(), false);
    _is_launched.assign(_is_launched.size(), false);
    _parameters_left.assign(_parameters_left.size(), 0);
    _next = 0;
    for (std::size_t parameter = 0; parameter < _units_left.size(); ++parameter) {
        auto const& spec = _layout->parameter(parameter);
        _units_left[parameter] = spec.trainable ? spec.units.size() : 0;
        if (spec.trainable) {
            for (std::size_t const bucket : _layout->parameter_buckets(parameter)) {
                ++_parameters_left[bucket];
            }
        }
    }
}

ZERO_INLINE void Readiness::mark(std::size_t unit) {
    _is_unit_ready[unit] = true;
    for (std::size_t const parameter : _layout->unit_parameters(unit)) {
        if (_layout->parameter(parameter).trainable && --_units_left[parameter] == 0) {
            for (std::size_t const bucket : _layout->parameter_buckets(parameter)) {
                --_parameters_left[bucket];
            }
        }
    }
}

ZERO_INLINE void Readiness::set_launched(std::size_t bucket) {
    _is_launched[bucket] = true;
    while (_next < _is_launched.size() && _is_launched[_next] != 0) {
        ++_next;
    }
}

ZERO_INLINE ReadyOrderRecorder::ReadyOrderRecorder(std::size_t units, bool is_wanted)
    : _is_noted(is_wanted ? units : 0, false) {
    _units.reserve(_is_noted.size()); // nothing is allocated inside a step
}

ZERO_INLINE void ReadyOrderRecorder::begin_step() noexcept {
    _units.clear();
    _is_noted.assign(_is_noted.size(), false);
}

ZERO_INLINE void ReadyOrderRecorder::note(std::size_t unit) {
    if (is_wanted() && std::exchange(_is_noted[unit], true) == 0) {
        _units.push_back(unit);
    }
}

ZERO_INLINE std::vector<std::size_t> const& ReadyOrderRecorder::complete() {
    for (std::size_t unit = _is_noted.size(); unit-- > 0;) {
        note(unit);
    }
    return _units;
}

ZERO_INLINE void ReadyOrderRecorder::stop() {
    _units = {};
    _is_noted = {};
}

} // namespace ZERO_NAMESPACE::detail
