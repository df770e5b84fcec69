#pragma once

#include "gradient_scheduler.hpp"

#include <utility>

namespace ZERO_NAMESPACE::detail {

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
