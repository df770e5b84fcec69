#pragma once

#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/hash.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Records the order in which a micro-step acquires units, and compares the next micro-step
/// with it. A member of the GatherSchedule.
class AcquisitionTrace {
public:
    static constexpr std::size_t none = static_cast<std::size_t>(-1);

    /// @brief Starts a step and the hashes of its acquisitions and gathers.
    void begin_step() noexcept {
        _hash = {};
        _gathers_before = _gathers.value();
        _gathers = {};
    }

    /// @brief Starts a micro-step.
    void begin() noexcept {
        _position = 0;
        _is_recording = true;
        _is_following = true;
        _hash.add(none); // the hash also depends on where micro-steps begin
    }

    /// @brief Ends recording. Acquisitions outside of micro-steps, for instance of an evaluation,
    /// are not part of the order.
    /// @param is_whole false if the micro-step is cancelled: the order that it recorded may be
    /// incomplete
    /// @return whether the recorded order has changed
    bool end(bool is_whole) noexcept {
        bool const has_recorded = _is_recording && (!_is_following || !_is_complete);
        _is_complete = has_recorded ? is_whole : _is_complete;
        _is_recording = false;
        return has_recorded;
    }

    [[nodiscard]] bool is_recording() const noexcept { return _is_recording; }

    /// @brief Returns the unit that follows in the recorded order; `none` at its end, and if this
    /// micro-step has left it.
    [[nodiscard]] std::size_t expected() const noexcept {
        return _is_following && _position < _units.size() ? _units[_position] : none;
    }

    /// @brief Returns whether an acquisition of the unit would leave the recorded order.
    [[nodiscard]] bool is_change(std::size_t unit) const noexcept {
        return _is_recording && _is_following && expected() != unit
               && (_is_complete || _position < _units.size());
    }

    /// @brief Records an acquisition. Returns its position if the order has been as recorded so
    /// far; otherwise `none`.
    std::size_t record(std::size_t unit) {
        if (!_is_recording) {
            return none;
        }
        _hash.add(unit);
        if (expected() == unit) {
            return _position++;
        }
        _is_following = _is_following && !is_change(unit);
        _units.resize(_position);
        _units.push_back(unit);
        ++_position;
        return none;
    }

    /// @brief Records a gather, in advance or not. Other micro-steps may gather other buckets.
    void record_gather(std::size_t bucket) noexcept {
        if (_is_recording) {
            _gathers.add(bucket);
        }
    }

    /// @brief Returns whether the micro-steps of this step gathered other buckets, or in another
    /// order, than those of the step before.
    [[nodiscard]] bool has_new_gathers() const noexcept {
        return _gathers.value() != _gathers_before;
    }

    /// @brief Returns the number of acquisitions in this micro-step so far.
    [[nodiscard]] std::size_t position() const noexcept { return _position; }
    /// @brief Returns the recorded order.
    [[nodiscard]] std::span<std::size_t const> units() const noexcept { return as_span(_units); }
    /// @brief Returns the hash of all acquisitions and gathers in micro-steps of this step.
    [[nodiscard]] std::uint64_t hash() const noexcept {
        Hash both = _hash;
        both.add(_gathers.value());
        return both.value();
    }

private:
    std::vector<std::size_t> _units;
    std::size_t _position = 0;
    bool _is_recording = false;
    bool _is_following = false; ///< this micro-step has not left the recorded order
    bool _is_complete = false;  ///< the order was recorded until the end of a micro-step
    Hash _hash{};               ///< acquisitions of the step
    Hash _gathers{}; ///< its gathers; apart, because a gather may be put off over an acquisition
    std::uint64_t _gathers_before = Hash{}.value(); ///< the same of the step before
};

} // namespace ZERO_NAMESPACE::detail
