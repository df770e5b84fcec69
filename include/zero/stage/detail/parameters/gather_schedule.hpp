#pragma once

#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/hash.hpp"
#include "../../../layout/detail/leases/gather_order.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../layout/gather_options.hpp"
#include "../../trace_report.hpp"
#include "../common/step_state.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
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
    Hash _gathers{}; ///< its gathers; separate, because a gather may be postponed past an
                     ///< acquisition
    std::uint64_t _gathers_before = Hash{}.value(); ///< the same of the step before
};

/// @brief Decides which buckets of sharded parameters are gathered in advance, which stay gathered
/// after their use, and which are freed first. Counts gathers and acquisitions for the TraceReport.
///
/// A member of the ParameterScheduler, which gathers and frees accordingly and reports each change.
/// It depends on no element type and sends nothing. Every decision follows from the options and
/// from the acquisitions of this rank, so ranks with equal acquisitions make equal decisions.
class GatherSchedule {
public:
    static constexpr std::size_t none = GatherOrder::none;

    [[gnu::cold]] GatherSchedule(FlatLayout const& layout, GatherOptions const& options,
                                 std::size_t rank);

    [[nodiscard]] bool is_gathered(std::size_t bucket) const noexcept {
        return _states[bucket].is_gathered;
    }

    /// @name An acquisition, in this order
    /// @{

    /// @throws OutOfOrder under ChangedOrder::error, naming the unit and both orders
    void require_recorded_order(std::size_t unit) const {
        if (_options->changed_order == ChangedOrder::error && _trace.is_change(unit)) {
            throw_changed_order(unit);
        }
    }

    /// @brief Returns whether the limit of live elements has room for the rest of a unit.
    [[nodiscard]] bool has_room(std::size_t unit) const noexcept;

    /// @brief Returns the gathered bucket that is freed first to make room for a unit: the one that
    /// is needed last, and a persistent one only if there is no other; `none` if all are in use.
    [[nodiscard]] std::size_t first_to_free(std::size_t unit) const noexcept;

    /// @brief Returns whether a bucket counts as freed although a handle holds it: the last
    /// acquisition used it and does not keep it, so another rank may have released it already.
    /// What is gathered must not depend on that.
    [[nodiscard]] bool is_over(std::size_t bucket) const noexcept {
        State const& state = _states[bucket];
        return state.users != 0 && state.acquired == _acquisitions && state.kept_until == none
               && !_layout->bucket(bucket).is_persistent;
    }

    /// @brief Returns whether the last acquisition used a bucket.
    [[nodiscard]] bool is_last(std::size_t bucket) const noexcept {
        return _states[bucket].acquired == _acquisitions;
    }

    /// @brief Returns whether a bucket of the unit is in use or was used since the last micro-step
    /// ended: a program may add up gradients before it begins the micro-step that reports them.
    /// True for a unit without buckets.
    [[nodiscard]] bool was_acquired(std::size_t unit) const noexcept;

    /// @brief Returns the unit of the last acquisition; `none` before the first.
    [[nodiscard]] std::size_t last_unit() const noexcept { return _unit; }

    /// @brief Returns whether nothing needs a gathered bucket any more.
    [[nodiscard]] bool is_unneeded(std::size_t bucket) const noexcept {
        State const& state = _states[bucket];
        return state.is_gathered && state.users == 0 && state.kept_until == none
               && state.ahead == none && !_layout->bucket(bucket).is_persistent;
    }

    /// @brief Returns whether a handle of the acquisition before the last one holds a bucket that
    /// counts as freed.
    [[nodiscard]] bool is_before_held() const noexcept;

    /// @brief Begins a use of every bucket of the unit, and advances the order.
    /// @param is_late whether the acquisition had to gather a bucket
    void hold(std::size_t unit, bool is_late);

    /// @brief Returns the next unit to gather in advance, or `none`. If it finds no room, call this
    /// again only after the next acquisition.
    [[nodiscard]] std::size_t next_ahead() noexcept;

    /// @brief Restarts the search of `next_ahead` after the last acquisition.
    void restart_ahead() noexcept { _ahead = _position == none ? 0 : _position + 1; }
    /// @}

    /// @brief Notes that a bucket in use was gathered again.
    void note_gather_again(std::size_t bucket) noexcept;

    /// @brief Notes that a bucket was gathered. @param ahead the unit for which it was gathered in
    /// advance
    void note_gather(std::size_t bucket, std::size_t ahead = none) noexcept;

    /// @brief Ends a use. @return whether the caller must free the bucket
    [[nodiscard]] bool release(std::size_t bucket) noexcept {
        State& state = _states[bucket];
        return --state.users == 0 && state.kept_until == none
               && !_layout->bucket(bucket).is_persistent;
    }
    [[nodiscard]] bool is_used(std::size_t bucket) const noexcept {
        return _states[bucket].users != 0;
    }

    /// @brief Notes that a bucket was freed.
    void note_free(std::size_t bucket) noexcept;

    /// @brief Calls `visit(bucket)` for every gathered bucket that is not in use.
    template <class Visitor>
    void for_idle(Visitor&& visit) const {
        for (std::size_t bucket = 0; _live != 0 && bucket < _states.size(); ++bucket) {
            if (_states[bucket].is_gathered && _states[bucket].users == 0) {
                visit(bucket);
            }
        }
    }

    /// @name The recorded order
    /// @{
    void begin_step() noexcept {
        _trace.begin_step();
        _is_changed = false;
    }
    void begin_micro_step() noexcept {
        ++_micro_steps;
        _trace.begin();
    }
    /// @param is_whole false if the micro-step is cancelled
    void end_micro_step(bool is_whole);

    /// @brief Returns what the ranks compare at the end of a step.
    [[nodiscard]] OrderEvidence evidence() const noexcept {
        return {_layout->world() > 1, _is_changed || _trace.has_new_gathers(), _trace.hash()};
    }
    [[nodiscard]] std::span<std::size_t const> recorded() const noexcept { return _trace.units(); }

    /// @brief Reports that the order or the gathers of this rank changed, and differ from those of
    /// another one. @throws CollectiveMismatch always
    [[noreturn, gnu::cold]] void throw_change() const;

    /// @brief Describes the context of a gather for messages: the unit and the last acquisitions of
    /// this micro-step, such as "unit 1 after units ... 4, 4, 3". Valid until the next call;
    /// allocates nothing.
    [[nodiscard]] char const* context_of(std::size_t unit) noexcept;

    /// @brief Describes an acquisition: the unit, this rank's order and, if it differs, the
    /// recorded one.
    [[nodiscard, gnu::cold]] std::string acquisition_text(std::size_t unit) const;

    /// @brief Copies what does not depend on the layout: the order and the counts.
    void continue_from(GatherSchedule& other);
    /// @}

    [[nodiscard]] TraceReport const& report() const noexcept { return _report; }

private:
    struct State {
        std::size_t users = 0;
        std::size_t kept_until = none; ///< position of the next use, until which it stays gathered
        std::size_t ahead = none;      ///< the unit for which it was gathered in advance; `none`
                                       ///< after its first use
        std::uint64_t acquired = 0;    ///< number of its last acquisition
        bool is_gathered = false;
    };

    [[noreturn, gnu::cold]] void throw_changed_order(std::size_t unit) const;
    [[nodiscard, gnu::cold]] std::string change_text() const;
    [[gnu::cold]] void note_change(std::size_t acquired);
    void count_gather(std::size_t bucket, std::size_t elements) noexcept;
    [[nodiscard]] std::string unit_text(std::size_t unit) const;

    FlatLayout const* _layout;
    GatherOptions const* _options;
    std::size_t _rank;
    AcquisitionTrace _trace;
    GatherOrder _order;           ///< decisions for the order that an earlier micro-step recorded
    std::vector<State> _states;   ///< by bucket
    std::size_t _live = 0;        ///< elements of gathered buckets, padded as in their places
    std::size_t _position = none; ///< position of the last acquisition in `_order`, or none
    std::size_t _ahead = 0;       ///< the units before this position in `_order` are gathered
    std::uint64_t _acquisitions = 0;    ///< number of the last acquisition
    std::uint64_t _acquired_before = 0; ///< the same at the end of the last micro-step
    std::size_t _unit = none;           ///< the unit of the last acquisition
    std::size_t _unit_before = none;    ///< the unit of the one before it
    std::uint64_t _micro_steps = 0;
    bool _is_changed = false;         ///< this rank recorded an order in this step
    OrderChange _change{};            ///< the last time a micro-step left the recorded order
    std::vector<std::size_t> _before; ///< the recorded order that `_change` left
    TraceReport _report;
    std::array<char, 96> _context{};
};

/// @brief Returns the units of an order around a position, for messages: "... 3, 4, [5], 6 ...".
[[gnu::cold]] std::string order_text(std::span<std::size_t const> units, std::size_t position);

/// @brief Reports orders that differ between ranks. @throws CollectiveMismatch always
/// @param orders the order of each rank, in rank order, each `size` long; shorter ones end with
/// `none`
[[noreturn, gnu::cold]] void throw_order_mismatch(FlatLayout const& layout,
                                                  std::span<std::uint64_t const> orders,
                                                  std::size_t size);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "gather_schedule.ipp"
#endif
