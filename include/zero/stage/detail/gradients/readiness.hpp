#pragma once

#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../stage_options.hpp"
#include "../common/step_state.hpp"
#include "../memory/bucket_pool.hpp"

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Tracks which units, parameters and buckets of one micro-step have their gradients.
///
/// A member of `GradientScheduler`. It depends only on the layout, not on data or queues. What is
/// missing is refused elsewhere, by `Protocol::require_all_used` (engine/protocol.ipp).
class Readiness {
public:
    Readiness() = default;

    [[gnu::cold]] explicit Readiness(FlatLayout const& layout);

    /// @brief Starts a micro-step.
    void reset();

    [[nodiscard]] bool is_unit_ready(std::size_t unit) const { return _is_unit_ready[unit] != 0; }
    [[nodiscard]] bool is_parameter_ready(std::size_t parameter) const {
        return _units_left[parameter] == 0;
    }
    /// @brief Whether any unit of the parameter is ready.
    [[nodiscard]] bool is_started(std::size_t parameter) const {
        return _units_left[parameter] < _layout->parameter(parameter).units.size();
    }
    [[nodiscard]] bool is_launched(std::size_t bucket) const { return _is_launched[bucket] != 0; }
    [[nodiscard]] bool is_complete(std::size_t bucket) const {
        return _parameters_left[bucket] == 0;
    }

    /// @brief Marks the unit's gradients as complete. Call it once per unit and micro-step:
    /// `Protocol` refuses a second `gradients_ready`.
    void mark(std::size_t unit);

    /// @brief The lowest bucket that is not launched; the number of buckets if all are.
    [[nodiscard]] std::size_t next() const noexcept { return _next; }

    void set_launched(std::size_t bucket);

private:
    FlatLayout const* _layout = nullptr;
    std::vector<char> _is_unit_ready;
    std::vector<std::size_t> _units_left;      ///< by parameter
    std::vector<std::size_t> _parameters_left; ///< by bucket
    std::vector<char> _is_launched;
    std::size_t _next = 0;
};

/// @brief Claims memory for the gradient buckets of a micro-step, so that its end always finds
/// memory for the buckets that have none.
///
/// A member of `GradientScheduler`. The end of a micro-step sends zeros for a bucket that was never
/// claimed, while the buckets after it are still open. A claim that would leave no room for that is
/// refused.
class GradientClaims {
public:
    [[gnu::cold]] explicit GradientClaims(FlatLayout const& layout)
        : _trainable(layout.trainable_buckets()) {
        _claimed.reserve(_trainable); // a step allocates nothing
    }

    void begin_micro_step() noexcept { _end = 0; }

    /// @brief Claims memory for the buckets that are leased and not launched, or for none.
    /// @param stores the `StoresByType` of gradients
    /// @return false if there is no room; nothing was changed
    template <class Stores>
    [[nodiscard]] bool claim(Stores& stores, Readiness const& readiness,
                             std::span<std::size_t const> buckets) {
        auto const is_wanted = [&](std::size_t bucket) {
            return bucket < _trainable && !readiness.is_launched(bucket)
                   && stores.of_bucket(bucket, [&](auto const& store) {
                          return store.is_leased(bucket) && !store.is_claimed(bucket);
                      });
        };
        bool is_met = claim_leases(stores, buckets, is_wanted, LeaseChoice::any_place, _claimed);
        std::size_t end = _end;
        for (std::size_t const bucket : _claimed) {
            end = end > bucket ? end : bucket + 1;
        }
        for (std::size_t bucket = readiness.next(); is_met && bucket < end; ++bucket) {
            is_met = !is_wanted(bucket) || stores.of_bucket(bucket, [&](auto const& store) {
                return store.has_room_after_earlier(bucket);
            });
        }
        if (is_met) {
            _end = end;
        } else {
            unclaim_leases(stores, _claimed);
        }
        return is_met;
    }

private:
    std::size_t _trainable;
    std::vector<std::size_t> _claimed; ///< buckets claimed by the current call
    std::size_t _end = 0;              ///< no bucket from here on was claimed in this micro-step
};

/// @brief Records how this rank delivers gradients: which memory of the engine may have been
/// written in a micro-step, the best evidence in a step that a gradient exists, and under
/// `UnusedParameters::leave` which parameters had one.
///
/// A member of `GradientScheduler`. It depends on no type of the engine.
class GradientDeliveries {
public:
    [[gnu::cold]] GradientDeliveries(FlatLayout const& layout, UnusedParameters unused)
        : _layout(&layout), _is_begun(layout.parameters().size(), false),
          _is_taken(layout.parameters().size(), false),
          _is_noted(unused == UnusedParameters::leave ? layout.parameters().size() : 0, false),
          _is_unused(_is_noted.size(), false) {
        for (auto const& parameter : layout.parameters()) {
            _is_any_trained = _is_any_trained || (parameter.trainable && parameter.elements != 0);
        }
    }

    /// @brief The evidence of this rank's gradients in this step; `delivered` if its model has
    /// none.
    [[nodiscard]] GradientEvidence evidence() const noexcept { return _evidence; }

    void begin_step() noexcept {
        _evidence = _is_any_trained ? GradientEvidence::nothing : GradientEvidence::delivered;
        _is_noted.assign(_is_noted.size(), false);
    }

    void begin_micro_step() {
        _is_begun.assign(_is_begun.size(), false);
        _is_taken.assign(_is_taken.size(), false);
        _is_unused.assign(_is_unused.size(), false);
    }

    /// @brief Notes that a gradient is leased. Returns whether it was already leased in this
    /// micro-step.
    [[nodiscard]] bool begin(std::size_t parameter) noexcept {
        return std::exchange(_is_begun[parameter], true) != 0;
    }
    [[nodiscard]] bool is_begun(std::size_t parameter) const noexcept {
        return _is_begun[parameter] != 0;
    }

    /// @brief Notes that the caller got the address of a gradient, or handed one over.
    /// @param is_engines whether it is in memory of the engine; otherwise this is a no-op
    void take(std::size_t parameter, bool is_engines = true) noexcept {
        if (is_engines) {
            _is_taken[parameter] = true;
            _evidence = GradientEvidence::delivered;
        }
    }

    /// @brief Whether the engine's memory of a gradient may have been written in this micro-step:
    /// only if the caller took its address or handed a gradient over.
    [[nodiscard]] bool is_taken(std::size_t parameter) const noexcept {
        return _is_taken[parameter] != 0;
    }

    /// @brief Notes that nothing was added to a gradient in this micro-step, although its memory
    /// was asked for or its unit is reported. A no-op unless parameters are noted.
    void note_unused(std::size_t parameter) noexcept {
        if (!_is_unused.empty()) {
            _is_unused[parameter] = true;
        }
    }

    /// @brief Notes that a parameter has a gradient in this step. A no-op unless it is noted.
    void note(std::size_t parameter) noexcept {
        if (!_is_noted.empty()) {
            _is_noted[parameter] = true;
        }
    }

    /// @brief Notes which parameters had a gradient in the micro-step that ends.
    /// @param is_written of a parameter
    template <class IsWritten>
    void end_micro_step(IsWritten const& is_written) {
        for (std::size_t parameter = 0; parameter < _is_noted.size(); ++parameter) {
            if (_is_noted[parameter] == 0 && _is_unused[parameter] == 0 && is_written(parameter)) {
                note(parameter);
            }
        }
    }

    /// @brief Per parameter: had a gradient on this rank in this step. Empty unless it is noted.
    [[nodiscard]] std::vector<char> const& noted() const noexcept { return _is_noted; }

    /// @brief Notes that caller-owned memory is leased, or reported without a lease.
    /// @param is_doubtful whether the engine clears it, perhaps too late, or it was not leased
    void lease_callers(std::size_t parameter, bool is_doubtful) noexcept {
        if (_evidence != GradientEvidence::delivered
            && _layout->parameter(parameter).elements != 0) {
            _evidence = is_doubtful ? GradientEvidence::doubtful : GradientEvidence::delivered;
        }
    }

    /// @brief Notes that caller-owned memory is reported as ready; it need not have been leased.
    void report_callers(std::size_t parameter) noexcept {
        if (!is_begun(parameter)) {
            lease_callers(parameter, true);
        }
    }

private:
    FlatLayout const* _layout;
    std::vector<char> _is_begun;  ///< per parameter: leased in this micro-step
    std::vector<char> _is_taken;  ///< per parameter: may have been written in this micro-step
    std::vector<char> _is_noted;  ///< per parameter, or empty: had a gradient in this step
    std::vector<char> _is_unused; ///< the same: had none in this micro-step, as the caller says
    GradientEvidence _evidence = GradientEvidence::nothing;
    bool _is_any_trained = false; ///< some parameter has a gradient
};

/// @brief Records the order in which the units of this rank first become ready in a step, in any of
/// its micro-steps. An engine uses it to rebuild its buckets.
class ReadyOrderRecorder {
public:
    /// @param is_wanted if false, nothing is recorded
    [[gnu::cold]] ReadyOrderRecorder(std::size_t units, bool is_wanted);

    [[nodiscard]] bool is_wanted() const noexcept { return !_is_noted.empty(); }

    void begin_step() noexcept;
    void note(std::size_t unit);

    /// @brief Returns all units. Those that never became ready come last, in reverse order of use,
    /// as at the end of a micro-step. Call it once per step.
    [[nodiscard]] std::vector<std::size_t> const& complete();

    /// @brief Stops recording.
    void stop();

private:
    std::vector<std::size_t> _units;
    std::vector<char> _is_noted; ///< by unit; empty if nothing is recorded
};

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "readiness.ipp"
#endif
