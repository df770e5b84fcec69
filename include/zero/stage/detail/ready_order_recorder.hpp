#pragma once

#include "../../core/detail/namespace.hpp"

#include <cstddef>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief The order in which the units of this rank became ready in a step: each the first time
/// that it did, in whichever micro-step.
class ReadyOrderRecorder {
public:
    /// @param is_wanted otherwise nothing is recorded
    ReadyOrderRecorder(std::size_t units, bool is_wanted)
        : _is_noted(is_wanted ? units : 0, false) {
        _units.reserve(_is_noted.size()); // nothing is allocated inside a step
    }

    [[nodiscard]] bool is_wanted() const noexcept { return !_is_noted.empty(); }

    void begin_step() noexcept {
        _units.clear();
        _is_noted.assign(_is_noted.size(), false);
    }

    void note(std::size_t unit) {
        if (is_wanted() && !std::exchange(_is_noted[unit], true)) {
            _units.push_back(unit);
        }
    }

    /// @brief All units: those that never became ready come last, as at the end of a micro-step, in
    /// reverse order of use. Once a step.
    [[nodiscard]] std::vector<std::size_t> const& complete() {
        for (std::size_t unit = _is_noted.size(); unit-- > 0;) {
            note(unit);
        }
        return _units;
    }

    /// @brief Nothing is wanted any more.
    void stop() {
        _units = {};
        _is_noted = {};
    }

private:
    std::vector<std::size_t> _units;
    std::vector<char> _is_noted; ///< by unit; empty when nothing is wanted
};

} // namespace ZERO_NAMESPACE::detail
