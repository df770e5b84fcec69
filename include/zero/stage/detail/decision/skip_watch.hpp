#pragma once

#include "../../../comm/detail/optional_operations.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../stage_options.hpp"
#include "../../step_report.hpp"
#include "../common/step_state.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

/// The errors of `StepControl`.
namespace ZERO_NAMESPACE::detail {

/// @throws OutOfOrder naming the step whose report was overwritten
/// @param kept number of reports that are kept
[[noreturn, gnu::cold]] void throw_report_overwritten(std::uint64_t serial, std::size_t kept);

/// @throws NoGradients with the causes and their remedies
/// @param is_zero whether the reported gradients are in registered memory and are zero
/// @param call the adapter's call that reports gradients; null: the engine's own calls
[[noreturn, gnu::cold]] void throw_no_gradients(bool is_zero, char const* call, int rank);

/// @throws NonFiniteGradients naming the first element
[[noreturn, gnu::cold]] void throw_non_finite(FlatLayout const& layout, StepReport const& report,
                                              int rank);

/// @brief Says which step was skipped, and why; for `StageOptions::on_skip`.
[[gnu::cold]] std::string skip_text(FlatLayout const& layout, StepFigures const& report, int rank);

/// @throws TooManySkips with the number of skipped steps and the cause of the last
[[noreturn, gnu::cold]] void throw_too_many_skips(FlatLayout const& layout,
                                                  StepFigures const& report, int rank);

/// @throws LossScaleExhausted naming the first element
[[noreturn, gnu::cold]] void throw_exhausted(FlatLayout const& layout, StepReport const& report,
                                             int rank);

/// @brief Answers steps that were skipped in a row: throws at `skip_limit`, and calls `on_skip` for
/// the first one. `StepControl` owns it.
///
/// `DecideStep` enforces the limit where it runs, so nothing waits for the step that has just been
/// enqueued. The watch reads the report of the step before it, which is equal on every rank, so all
/// ranks throw in the same `begin_step`. Without `on_skip` it reads only the report of a step that
/// can have reached the limit: one in every `skip_limit` steps while none is skipped.
///
/// The watch also keeps the host from running ahead where ranks share a process: before a step it
/// waits for the step before the last one. Otherwise the full launch queue of one device could
/// block the launch for which another device waits.
template <class Config>
class SkipWatch {
public:
    using Backend = typename Config::Backend;
    using Queue = typename Backend::Queue;
    using Event = typename Backend::Event;

    /// @param state scalars of the step, in backend memory
    /// @param reports where the host reads them
    SkipWatch(StageOptions<Config> const& options, FlatLayout const& layout,
              typename Config::Communicator& communicator, Queue queue,
              StepState<StepOf<Config>>* state, StepReports* reports) noexcept
        : _options(&options), _layout(&layout), _communicator(&communicator), _queue(queue),
          _state(state), _reports(reports) {
        expect_after(0, 0);
    }

    /// @brief Chooses the next report to read, after the step `serial` with this count of skipped
    /// steps. @return the count, which is below the limit, so that a resumed run may try a step
    std::uint64_t expect_after(std::uint64_t serial, std::uint64_t count) noexcept {
        std::uint64_t const limit = _options->skip_limit;
        if (limit != 0 && count >= limit) {
            count = limit - 1;
        }
        _watched = _options->on_skip ? serial + 1 : limit == 0 ? no_step : serial + (limit - count);
        return count;
    }

    /// @brief Notes the end of a step.
    void end_step(std::uint64_t serial, Event const& done) {
        if (shares_process(*_communicator)) {
            _ends[serial % 2] = done;
        }
        if (serial == _watched) {
            _end = done;
        }
    }

    void forget_events() noexcept {
        _end.reset();
        _ends = {};
    }

    /// @brief Reads a report if one is due, at the beginning of a step. Waits for its step, which
    /// is not the last one.
    /// @param serial number of the last step
    /// @throws TooManySkips on every rank; the count then starts again
    void answer(std::uint64_t serial) {
        if (Event const& before_last = _ends[(serial + 1) % 2]; !is_in_graph(before_last)) {
            Backend::synchronise(before_last);
        }
        if (serial > _watched) {
            look(serial);
        }
    }

private:
    static bool is_in_graph([[maybe_unused]] Event const& event) {
        if constexpr (requires { event.is_captured(); }) {
            return event.is_captured();
        } else {
            return false;
        }
    }

    [[gnu::cold]] void look(std::uint64_t serial) {
        Event const end = _end ? *_end : Backend::record(_queue);
        if (is_in_graph(end)) {
            return; // while a graph is captured nothing can be read
        }
        Backend::synchronise(end);
        Backend::rethrow_failure(_queue);
        rethrow_failure_of(*_communicator);
        StepFigures const found = _reports->of(_watched);
        _end.reset();
        if (found.serial != _watched) { // captured, and not run or overwritten since
            expect_after(serial, 0);
            return;
        }
        std::uint64_t const limit = _options->skip_limit;
        if (limit != 0 && found.skipped_in_a_row >= limit) {
            expect_after(serial, 0);
            Backend::run(_queue, Assign<std::uint64_t>{&_state->skipped_in_a_row, 0});
            throw_too_many_skips(*_layout, found, _communicator->rank());
        }
        expect_after(_watched, found.skipped_in_a_row);
        if (_options->on_skip && found.skipped_in_a_row == 1) {
            _options->on_skip(skip_text(*_layout, found, _communicator->rank()));
        }
    }

    static constexpr std::uint64_t no_step = std::numeric_limits<std::uint64_t>::max();

    StageOptions<Config> const* _options;
    FlatLayout const* _layout;
    typename Config::Communicator* _communicator;
    Queue _queue;
    StepState<StepOf<Config>>* _state;
    StepReports* _reports;
    std::uint64_t _watched = no_step; ///< the step whose report is read next
    std::optional<Event> _end{};      ///< its end, once it is enqueued
    std::array<Event, 2> _ends{}; ///< of the last two steps; complete unless ranks share a process
};

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "step_errors.ipp"
#endif
