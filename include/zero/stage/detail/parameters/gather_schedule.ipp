#pragma once

#include "gather_schedule.hpp"

#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/text.hpp"
#include "../../../core/detail/throw_error.hpp"
#include "../../../core/error.hpp"
#include "../../../layout/padding.hpp"

#include <utility>

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE GatherSchedule::GatherSchedule(FlatLayout const& layout,
                                                GatherOptions const& options, std::size_t rank)
    : _layout(&layout), _options(&options), _rank(rank), _order(layout, options),
      _states(layout.buckets()) {
    _report.units.resize(layout.units());
}

ZERO_INLINE bool GatherSchedule::has_room(std::size_t unit) const noexcept {
    if (_options->max_live_elements == GatherOptions::all) {
        return true;
    }
    std::size_t live = _live;
    for (std::size_t const bucket : _layout->unit_buckets(unit)) {
        live += _states[bucket].is_gathered ? 0 : padded_size(_layout->elements(bucket));
    }
    return live <= _options->max_live_elements;
}

ZERO_INLINE std::size_t GatherSchedule::first_to_free(std::size_t unit) const noexcept {
    std::size_t first = none;
    bool is_last_resort = true;
    std::size_t furthest = 0;
    for (std::size_t bucket = 0; bucket < _states.size(); ++bucket) {
        State const& state = _states[bucket];
        bool const is_idle = state.is_gathered && state.users == 0;
        if (!is_idle || contains_ascending(_layout->unit_buckets(unit), bucket)) {
            continue;
        }
        bool const is_persistent = _layout->bucket(bucket).is_persistent;
        // A bucket that was gathered in advance is needed sooner than one that is kept.
        std::size_t const needed = state.kept_until == none ? 0 : state.kept_until;
        if (first == none || (is_last_resort && !is_persistent)
            || (is_last_resort == is_persistent && needed > furthest)) {
            first = bucket;
            is_last_resort = is_persistent;
            furthest = needed;
        }
    }
    return first;
}

ZERO_INLINE void GatherSchedule::hold(std::size_t unit, bool is_late) {
    auto const buckets = _layout->unit_buckets(unit);
    if (_trace.is_change(unit)) {
        note_change(unit);
    }
    std::size_t const recorded = _trace.record(unit);
    _position = recorded < _order.size() ? recorded : none;
    ++_acquisitions;
    _unit_before = std::exchange(_unit, unit);
    bool is_in_time = false;
    for (std::size_t index = 0; index < buckets.size(); ++index) {
        State& state = _states[buckets[index]];
        ++state.users;
        state.acquired = _acquisitions;
        is_in_time = is_in_time || state.ahead != none;
        state.ahead = none;
        state.kept_until = _position == none ? none : _order.kept_until(_position, index);
    }
    UnitGathers& counts = _report.units[unit];
    ++(is_late ? counts.late : is_in_time ? counts.in_time : counts.resident);
    _ahead = _position == none ? 0 : larger(_ahead, _position + 1);
}

ZERO_INLINE bool GatherSchedule::was_acquired(std::size_t unit) const noexcept {
    auto const buckets = _layout->unit_buckets(unit);
    for (std::size_t const bucket : buckets) {
        State const& state = _states[bucket];
        if (state.users != 0 || state.acquired > _acquired_before) {
            return true;
        }
    }
    return buckets.empty();
}

ZERO_INLINE std::size_t GatherSchedule::next_ahead() noexcept {
    if (_position == none) {
        return none;
    }
    for (std::size_t const end = _order.prefetch_end(_position); _ahead < end; ++_ahead) {
        std::size_t const unit = _order.unit(_ahead);
        for (std::size_t const bucket : _layout->unit_buckets(unit)) {
            if (!_states[bucket].is_gathered) {
                return unit;
            }
        }
    }
    return none;
}

ZERO_INLINE bool GatherSchedule::is_before_held() const noexcept {
    bool is_held = false;
    if (_position != none && _unit_before != none) { // otherwise nothing is gathered in advance
        for (std::size_t const bucket : _layout->unit_buckets(_unit_before)) {
            State const& state = _states[bucket];
            is_held = is_held
                      || (state.users != 0 && state.acquired + 1 == _acquisitions
                          && state.kept_until == none && !_layout->bucket(bucket).is_persistent);
        }
    }
    return is_held;
}

/// Counts a gather that sends something. Ranks may note that of an empty bucket in other places.
ZERO_INLINE void GatherSchedule::count_gather(std::size_t bucket, std::size_t elements) noexcept {
    if (elements != 0) {
        _trace.record_gather(bucket);
        ++_report.gathers;
        _report.gathered_elements += elements;
    }
}

ZERO_INLINE void GatherSchedule::note_gather_again(std::size_t bucket) noexcept {
    count_gather(bucket, _layout->elements(bucket));
}

ZERO_INLINE void GatherSchedule::note_gather(std::size_t bucket, std::size_t ahead) noexcept {
    State& state = _states[bucket];
    state.is_gathered = true;
    state.ahead = ahead;
    std::size_t const elements = _layout->elements(bucket);
    _live += padded_size(elements);
    count_gather(bucket, elements);
    _report.live_elements = _live;
    _report.most_live_elements = larger(_report.most_live_elements, _live);
}

ZERO_INLINE void GatherSchedule::note_free(std::size_t bucket) noexcept {
    State& state = _states[bucket];
    if (state.ahead != none) {
        ++_report.units[state.ahead].dropped;
    }
    state.ahead = none;
    state.kept_until = none;
    state.is_gathered = false;
    _live -= padded_size(_layout->elements(bucket));
    _report.live_elements = _live;
    // A unit before `_ahead` may need the bucket again.
    _ahead = 0;
}

ZERO_INLINE char const* GatherSchedule::context_of(std::size_t unit) noexcept {
    char* end = _context.data();
    auto const add = [&](char const* text) {
        for (; *text != '\0' && end + 1 != _context.data() + _context.size(); ++text) {
            *end++ = *text;
        }
        *end = '\0';
    };
    auto const add_number = [&](std::size_t number) {
        std::array<char, 21> digits{};
        char* first = digits.data() + digits.size() - 1;
        do {
            *--first = static_cast<char>('0' + number % 10);
            number /= 10;
        } while (number != 0);
        add(first);
    };
    add("unit ");
    add_number(unit);
    std::size_t const acquired = _trace.is_recording() ? _trace.position() : 0;
    std::size_t const shown = smaller(acquired, std::size_t{6});
    add(!_trace.is_recording() ? " outside of micro-steps"
        : acquired == 0        ? " at the beginning of a micro-step"
        : acquired == shown    ? " after units "
                               : " after units ... ");
    for (std::size_t index = acquired - shown; index < acquired; ++index) {
        add_number(_trace.units()[index]);
        add(index + 1 == acquired ? "" : ", ");
    }
    return _context.data();
}

ZERO_COLD_INLINE void GatherSchedule::note_change(std::size_t acquired) {
    _is_changed = true;
    _change = {_micro_steps, _trace.position(), acquired, _trace.expected()};
    _before.assign(_trace.units().begin(), _trace.units().end());
    if (_report.changed_orders++ == 0) {
        _report.first_change = _change;
    }
}

ZERO_INLINE void GatherSchedule::end_micro_step(bool is_whole) {
    bool const is_shorter = is_whole && _trace.is_recording() && _trace.expected() != none;
    if (is_shorter) {
        note_change(OrderChange::end);
    }
    if (_trace.end(is_whole)) {
        _is_changed = true;
        _order.assign(_trace.units());
    }
    _position = none;
    _ahead = 0;
    _acquired_before = _acquisitions;
}

ZERO_COLD_INLINE void GatherSchedule::continue_from(GatherSchedule& other) {
    _trace = std::move(other._trace);
    _order.assign(_trace.units());
    _micro_steps = other._micro_steps;
    _is_changed = other._is_changed;
    _change = other._change;
    _before = std::move(other._before);
    _report = std::move(other._report);
    _report.live_elements = 0;
}

ZERO_COLD_INLINE std::string GatherSchedule::unit_text(std::size_t unit) const {
    return unit == none ? "the end of the micro-step" : _layout->unit_text(unit);
}

ZERO_COLD_INLINE std::string order_text(std::span<std::size_t const> units, std::size_t position) {
    constexpr std::size_t around = 4;
    std::size_t const begin = position > around ? position - around : 0;
    std::size_t const end = smaller(units.size(), position + around + 1);
    std::string list = begin == 0 ? "" : "... ";
    for (std::size_t at = begin; at < end; ++at) {
        list += at == begin ? "" : ", ";
        list += at == position ? text({'[', units[at], ']'}) : text({units[at]});
    }
    return end < units.size() ? list + " ..." : position < units.size() ? list : list + " [end]";
}

/// Where this rank left the recorded order for the last time, or the order that it recorded, or, if
/// it followed that order in this step, what it gathered.
ZERO_COLD_INLINE std::string GatherSchedule::change_text() const {
    if (!_is_changed) {
        return text({"rank ", _rank,
                     " followed the recorded order and gathered other units than in the step "
                     "before, as a rank does that holds other units at once"});
    }
    if (_change.micro_step == 0) {
        return text({"rank ", _rank, " recorded the order ", order_text(_trace.units(), 0)});
    }
    std::span<std::size_t const> const own = _trace.units();
    return text(
        {"rank ", _rank, " came to ", unit_text(_change.acquired), " as number ", _change.position,
         " of its micro-step, where the recorded order has ", unit_text(_change.expected),
         "; its order is ",
         order_text(_change.acquired == OrderChange::end ? own.first(_change.position) : own,
                    _change.position),
         ", the recorded one ", order_text(as_span(_before), _change.position)});
}

/// Returns what to change in a program whose ranks acquired or gathered units in different orders.
inline constexpr char const* same_order_remedy =
    "Acquire the same units in the same order on every rank, and hold more than two consecutive "
    "units at once on all ranks or on none.";

ZERO_COLD_INLINE void GatherSchedule::throw_change() const {
    throw_error<CollectiveMismatch>({"zero: the ranks acquired or gathered units in different "
                                     "orders; ",
                                     change_text(), ". The step changed nothing. ",
                                     same_order_remedy});
}

ZERO_COLD_INLINE std::string GatherSchedule::acquisition_text(std::size_t unit) const {
    if (!_trace.is_recording()) {
        return text(
            {"rank ", _rank, " acquires ", _layout->unit_text(unit), " outside of micro-steps"});
    }
    std::size_t const position = _trace.position();
    std::vector<std::size_t> own(_trace.units().begin(),
                                 _trace.units().begin() + static_cast<std::ptrdiff_t>(position));
    own.push_back(unit);
    std::string const start =
        text({"rank ", _rank, " acquires ", _layout->unit_text(unit), " as number ", position,
              " of its micro-step, in the order ", order_text(as_span(own), position)});
    return _trace.is_change(unit)
               ? start + ", where the recorded order is " + order_text(_trace.units(), position)
           : _trace.expected() == unit ? start + ", as recorded"
                                       : start + ", which it records";
}

ZERO_COLD_INLINE void GatherSchedule::throw_changed_order(std::size_t unit) const {
    throw_error<OutOfOrder>({"zero: ", acquisition_text(unit),
                             "; acquire the units of every micro-step in one order, or leave out "
                             "ChangedOrder::error."});
}

ZERO_COLD_INLINE void throw_order_mismatch(FlatLayout const& layout,
                                           std::span<std::uint64_t const> orders,
                                           std::size_t size) {
    std::size_t const ranks = size == 0 ? 0 : orders.size() / size;
    for (std::size_t rank = 1; rank < ranks; ++rank) {
        for (std::size_t at = 0; at < size; ++at) {
            auto const unit_at = [&](std::size_t of) {
                return static_cast<std::size_t>(orders[of * size + at]);
            };
            if (unit_at(0) == unit_at(rank)) {
                continue;
            }
            auto const order_of = [&](std::size_t of) {
                std::vector<std::size_t> units;
                for (std::size_t index = 0; index < size; ++index) {
                    if (orders[of * size + index] != GatherSchedule::none) {
                        units.push_back(static_cast<std::size_t>(orders[of * size + index]));
                    }
                }
                return order_text(as_span(units), at);
            };
            auto const unit_text = [&](std::size_t unit) {
                return unit == GatherSchedule::none ? std::string("nothing more")
                                                    : layout.unit_text(unit);
            };
            throw_error<CollectiveMismatch>(
                {"zero: the ranks acquired units in different orders; as number ", at,
                 " of a micro-step rank 0 acquired ", unit_text(unit_at(0)), " and rank ", rank,
                 " acquired ", unit_text(unit_at(rank)), "; rank 0: ", order_of(0), "; rank ", rank,
                 ": ", order_of(rank),
                 ". The step changed nothing. Acquire the same units in the same order on every "
                 "rank; skip(unit) takes the place of acquire where a rank does not use one, and "
                 "gradients_ready(unit) that of its gradients."});
        }
    }
    throw_error<CollectiveMismatch>(
        {"zero: the ranks acquired units in different orders in a micro-step before the last one, "
         "or gathered different units. The step changed nothing. ",
         same_order_remedy});
}

} // namespace ZERO_NAMESPACE::detail
