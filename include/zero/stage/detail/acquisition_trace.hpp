#pragma once

#include "../../core/detail/namespace.hpp"

#include <cstddef>
#include <optional>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Records the order in which a micro-step acquires units and predicts the next one from the
/// previous micro-step. The ParameterScheduler uses the prediction to prefetch.
class AcquisitionTrace {
public:
    /// @brief Starts a micro-step: its acquisitions are compared with those of the previous one.
    void begin() noexcept {
        _position = 0;
        _is_recording = true;
    }

    /// @brief Ends recording. Acquisitions outside of micro-steps, for instance of an evaluation,
    /// are not part of the order.
    void end() noexcept { _is_recording = false; }

    /// @brief Records an acquisition. Returns the unit that came next in the previous micro-step,
    /// if the order has been the same so far.
    std::optional<std::size_t> record(std::size_t unit) {
        if (!_is_recording) {
            return std::nullopt;
        }
        bool const is_expected = _position < _units.size() && _units[_position] == unit;
        if (!is_expected) {
            _units.resize(_position);
            _units.push_back(unit);
        }
        ++_position;
        if (!is_expected || _position == _units.size()) {
            return std::nullopt;
        }
        return _units[_position];
    }

private:
    std::vector<std::size_t> _units;
    std::size_t _position = 0;
    bool _is_recording = false;
};

} // namespace ZERO_NAMESPACE::detail
