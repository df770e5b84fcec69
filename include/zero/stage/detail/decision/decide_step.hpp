#pragma once

/// @file
/// @brief The one place that computes the clip coefficient, decides whether a step is skipped, and
/// sets the next loss scale.

#include "../../../core/buffer.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/detail/throw_error.hpp"
#include "../../../core/error.hpp"
#include "../../../core/host_device.hpp"
#include "../../../core/memory_resource.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../ops/arithmetic.hpp"
#include "../../../ops/counter_random.hpp"
#include "../../../ops/exact_sum.hpp"
#include "../../../policy/gradient_reduction.hpp"
#include "../../../policy/master_weights_policy.hpp"
#include "../../step_report.hpp"
#include "../common/drain.hpp"
#include "../common/step_state.hpp"
#include "report_store.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns the divisor of a payload before it is sent. It keeps a sum over W ranks in the
/// range of the communication type. It is not the mean: `unscale_factor` undoes it and
/// divides by ranks and micro-steps.
/// @throws InvalidArgument if the option or its inverse is not a positive normal number
[[gnu::cold]] inline float predivide_factor(GradientReductionOptions const& options,
                                            std::size_t world, bool communicates_float16) {
    if (options.predivide) {
        constexpr float smallest_normal = 0x1p-126F; // 2^126 is the largest whose inverse is normal
        float const divisor = *options.predivide;
        if (!(divisor >= smallest_normal && divisor <= 1.0F / smallest_normal)) {
            throw_error<InvalidArgument>(
                {"zero: predivide is ", divisor,
                 "; it and its inverse must be positive normal numbers. A power of two divides "
                 "without rounding."});
        }
        return divisor;
    }
    float divisor = 1.0F;
    while (communicates_float16 && static_cast<std::size_t>(divisor * divisor) * 2 < world) {
        divisor *= 2.0F;
    }
    return divisor;
}

/// @brief Returns the factor that unscales and averages a reduced gradient, before clipping. It is
/// computed in double and rounded once, where it is applied.
/// @param divisor world size times micro-steps for a mean, world size for a mean over ranks, 1 for
/// a sum, the sum of all weights for a weighted mean
/// @param predivide the divisor of the payloads before the reduction
ZERO_HOST_DEVICE inline double unscale_factor(float predivide, double divisor,
                                              float loss_scale) noexcept {
    return static_cast<double>(predivide) / ops::mul(divisor, static_cast<double>(loss_scale));
}

/// @brief Returns the norm of gradients, unscaled and averaged. Infinite if an element is not
/// finite.
ZERO_HOST_DEVICE inline double norm_of(ops::Inspection const& inspection, double factor) noexcept {
    return inspection.non_finite_count() != 0
               ? __builtin_inf()
               : ops::mul(ops::root(inspection.sum_of_squares()), factor);
}

/// @brief Returns the sums of the groups that are clipped.
template <class Group>
ZERO_HOST_DEVICE ops::Inspection clipped_of(ReportedFigures const& figures, Group const* groups) {
    ops::Inspection clipped;
    for (std::size_t group = 0; group < figures.group_count; ++group) {
        if (groups[group].is_clipped) {
            for (std::size_t i = 0; i < ReportedFigures::sums; ++i) {
                clipped.sums[i] += figures.of(group)[i];
            }
        }
    }
    return clipped;
}

/// @brief A step of one engine, which decides on its own integers.
struct NotJoint {
    ZERO_HOST_DEVICE static ops::Inspection const& inspection(ops::Inspection const& own) noexcept {
        return own;
    }
};

/// @brief The decision of a step as one command: clip coefficient, update factor, skip,
/// hyper-parameters, next loss scale and report.
///
/// `StepControl::decide` enqueues it after the norm and the overflow count are reduced over all
/// ranks. It runs on the host and on devices, and only updates `*state`, its reports and `groups`.
/// @tparam Joint `JointFigures` if several engines decide together
template <class Step, class Joint = NotJoint>
struct DecideStep {
    StepState<Step>* state;
    GroupState<typename Step::Optimizer>* groups;
    NormGuard* guard; ///< null without `skip_above_norm`
    std::uint64_t serial;
    double learning_rate;
    double divisor;  ///< as for `unscale_factor`; 0: the sum of
                     ///< weights in `state`
    float predivide; ///< the divisor of the payloads before the reduction
    float max_norm;  ///< infinite: no clipping
    std::uint32_t group_count;
    bool is_inspected;       ///< `state->integers` has norm and overflow of this step
    bool skips_non_finite;   ///< an overflow skips the step
    bool compares_order;     ///< `state->integers` has the orders of all ranks; the step is skipped
                             ///< if they differ
    ReportedFigures figures; ///< figures of this step, reduced over the ranks
    std::uint64_t skip_limit; ///< steps skipped in a row after which every step is skipped; 0:
                              ///< no limit
    [[no_unique_address]] Joint joint{}; ///< what several engines decide on together

    ZERO_HOST_DEVICE void operator()() const {
        using Scaler = typename Step::LossScaler;
        StepState<Step>& s = *state;
        if (figures.exchanged != nullptr) {
            UnpackFigures{figures}(s.integers);
        }
        ops::Inspection const& inspection = joint.inspection(s.integers.inspection);
        bool is_same_order = !compares_order || s.integers.agreement.is_same();
        if constexpr (is_cut) {
            is_same_order = is_same_order && !s.model.has_stopped;
        }
        if constexpr (is_joint) {
            is_same_order =
                is_same_order && !joint.total->has_stopped && joint.total->serial == serial;
        }
        bool const is_stopped = skip_limit != 0 && s.skipped_in_a_row >= skip_limit;
        StepFigures report;
        report.serial = serial;
        report.has_norm = is_inspected;
        report.loss_scale = s.captured_scale;
        double const all = divisor == 0.0 ? static_cast<double>(s.weight) : divisor;
        bool const is_empty = all == 0.0; // the total weight is 0: there is no mean
        auto const evidence = static_cast<GradientEvidence>(inspection.first_non_finite);
        double const base = is_empty ? 0.0 : unscale_factor(predivide, all, s.captured_scale);
        report.is_skipped = is_empty;
        double coefficient = 1.0;
        if (is_inspected) {
            report.non_finite_count = inspection.non_finite_count();
            bool const overflow = report.non_finite_count != 0;
            report.first_non_finite = overflow ? inspection.first_non_finite : -1;
            if constexpr (is_cut || is_joint) { // perhaps in another part of the model
                std::int64_t const first = s.integers.inspection.first_non_finite;
                report.first_non_finite =
                    static_cast<GradientEvidence>(first) < GradientEvidence::delivered ? first : -1;
            }
            report.gradient_norm = norm_of(inspection, base);
            double clipped_norm = report.gradient_norm;
            if constexpr (is_joint) {
                clipped_norm = norm_of(joint.total->clipped, base);
            } else if (figures.leaves_out) {
                clipped_norm = norm_of(clipped_of(figures, groups), base);
            }
            double const ratio = static_cast<double>(max_norm) / ops::add(clipped_norm, 1e-6);
            coefficient = ratio < 1.0 ? ratio : 1.0;
            report.is_skipped = is_empty || (overflow && skips_non_finite);
            if (guard != nullptr && !overflow && is_same_order) {
                double const largest = guard->largest();
                constexpr double most = 0x1.fffffep127; // the largest float
                report.norm_limit =
                    largest > most ? report.norm_limit : static_cast<float>(largest);
                report.is_too_large = report.gradient_norm > largest;
                report.is_skipped = report.is_skipped || report.is_too_large;
            }
            s.is_exhausted = overflow && Scaler::is_exhausted(s.scaler, s.scaler_options);
        }
        bool const is_zero = evidence == GradientEvidence::doubtful && serial == 1 && is_inspected
                             && report.gradient_norm == 0.0;
        report.has_gradients = is_empty || !(evidence == GradientEvidence::nothing || is_zero);
        if constexpr (is_cut) {
            report.has_gradients = report.has_gradients && (is_empty || !s.model.has_silent_part);
        }
        if constexpr (is_joint) {
            report.has_gradients =
                report.has_gradients && (is_empty || !joint.total->has_silent_part);
        }
        report.is_skipped =
            report.is_skipped || !report.has_gradients || !is_same_order || is_stopped;
        // A step without gradients says nothing about the scale, and neither does one whose norm is
        // too large, or whose gradients may be those of other units. After `skip_limit` nothing
        // changes at all.
        bool const is_clean = !is_empty && report.has_gradients && !report.is_too_large;
        if (is_inspected && is_same_order && !is_stopped
            && (report.non_finite_count != 0 || is_clean)) {
            s.scaler = Scaler::next(s.scaler, report.non_finite_count != 0, s.scaler_options);
        }
        report.clip_coefficient = static_cast<float>(coefficient);
        s.decision.factor = static_cast<float>(ops::mul(base, coefficient));
        s.decision.skip = report.is_skipped;
        if (!report.is_skipped) {
            ++s.step_count;
            if constexpr (Step::MasterWeights::form == MasterForm::stochastic) {
                s.decision.random_key = ops::random_key(s.master_options.seed, s.step_count);
            } else if constexpr (Step::rounds_states) {
                s.decision.random_key = ops::random_key(0, s.step_count);
            }
            for (std::size_t group = 0; group < group_count; ++group) {
                groups[group].factor =
                    groups[group].is_clipped ? s.decision.factor : static_cast<float>(base);
                groups[group].hyper = Step::Optimizer::hyper(
                    groups[group].options,
                    ops::mul(learning_rate, groups[group].learning_rate_factor), s.step_count);
            }
        }
        if (guard != nullptr) {
            if (!report.is_skipped && report.non_finite_count == 0) {
                guard->add(report.gradient_norm);
            }
            guard->running.too_large += report.is_too_large && !is_stopped ? 1U : 0U;
            report.too_large = guard->running.too_large;
        }
        s.skipped_in_a_row = report.is_skipped ? s.skipped_in_a_row + 1 : 0;
        report.skipped_in_a_row = s.skipped_in_a_row;
        report.step_count = s.step_count;
        report.next_loss_scale = s.scaler.scale;
        if (figures.exchanged != nullptr) {
            report.zero_gradients = *figures.zeros();
            if (figures.norms != nullptr) {
                report_group_norms(base);
            }
        }
        s.reports->last_serial = serial;
        s.reports->figures[serial % StepReports::kept] = report;
    }

private:
    static constexpr bool is_cut = Step::is_cut;
    static constexpr bool is_joint = !std::is_same_v<Joint, NotJoint>;

    ZERO_HOST_DEVICE void report_group_norms(double factor) const {
        double* const norms = figures.norms + serial % StepReports::kept * figures.group_count;
        for (std::size_t group = 0; group < figures.group_count; ++group) {
            ops::Inspection inspection;
            for (std::size_t i = 0; i < ReportedFigures::sums; ++i) {
                inspection.sums[i] = figures.of(group)[i];
            }
            norms[group] = norm_of(inspection, factor);
        }
    }
};

} // namespace ZERO_NAMESPACE::detail

/// The decision of a step for each parameter, as commands, which a device runs as well.
/// `UpdateCounts` enqueues them.
namespace ZERO_NAMESPACE::detail {

/// @brief The number of updates of one parameter, in backend memory, and its group.
struct UpdateCount {
    std::uint64_t missed = 0; ///< steps minus updates, modulo 2^64
    std::uint64_t group = 0;  ///< index of the parameter group
};

/// @brief Writes the minima of some parameters, as `ReportedFigures` describes them. The bits
/// travel in the command, so that a graph keeps them.
struct NoteUnused {
    static constexpr std::size_t words = 11;
    static constexpr std::size_t capacity = 64 * words; ///< parameters of one command

    std::int64_t* to;
    std::size_t count;         ///< parameters of this command
    std::uint64_t used[words]; ///< one bit for each: had a gradient on this rank
    ZERO_HOST_DEVICE void operator()() const { write(std::make_index_sequence<words>()); }

private:
    /// Constant indices: a kernel would copy an array that it indexes otherwise to local memory.
    template <std::size_t... Words>
    ZERO_HOST_DEVICE void write(std::index_sequence<Words...> /*unused*/) const {
        (write_word(used[Words], 64 * Words), ...);
    }

    ZERO_HOST_DEVICE void write_word(std::uint64_t bits, std::size_t begin) const {
        for (std::size_t i = begin; i < count && i < begin + 64; ++i) {
            to[i] = (bits >> (i - begin) & 1U) != 0 ? 0 : 1;
        }
    }
};

/// @brief The decision of a step for each parameter, after `DecideStep`: which ones are left as
/// they are, and the hyper-parameters of the others by their own number of updates.
template <class Step>
struct DecideParameters {
    using Optimizer = typename Step::Optimizer;

    StepState<Step> const* state;
    GroupState<Optimizer> const* groups;
    GroupState<Optimizer>* rows; ///< one for each parameter
    UpdateCount* counts;
    std::int64_t const* unused; ///< reduced minima of `NoteUnused`; null: no parameter is left
    std::size_t parameters;
    double learning_rate;

    ZERO_HOST_DEVICE void operator()() const {
        for (std::size_t parameter = 0; !state->decision.skip && parameter < parameters;
             ++parameter) {
            UpdateCount& count = counts[parameter];
            GroupState<Optimizer> const& group = groups[count.group];
            GroupState<Optimizer>& row = rows[parameter];
            row.factor = group.factor;
            row.is_left = unused != nullptr && unused[parameter] != 0;
            if (row.is_left) {
                ++count.missed;
            } else if (count.missed == 0) {
                row.hyper = group.hyper;
            } else {
                row.hyper = Optimizer::hyper(group.options,
                                             ops::mul(learning_rate, group.learning_rate_factor),
                                             state->step_count - count.missed);
            }
        }
    }
};

/// @brief Sets the updates of every parameter to the number of steps.
struct ClearMissed {
    UpdateCount* counts;
    std::size_t parameters;
    ZERO_HOST_DEVICE void operator()() const {
        for (std::size_t parameter = 0; parameter < parameters; ++parameter) {
            counts[parameter].missed = 0;
        }
    }
};

/// @brief Owns each parameter's number of updates and its row of hyper-parameters, in backend
/// memory, as soon as the numbers may differ: `UnusedParameters::leave`, or states that were loaded
/// for some parameters only. Until then it allocates and enqueues nothing. `StepControl` owns it.
template <class Config>
class UpdateCounts {
public:
    using Backend = typename Config::Backend;
    using Queue = typename Backend::Queue;
    using Group = GroupState<typename Config::Optimizer>;

    /// @param keeps_all whether numbers are kept from the beginning
    [[gnu::cold]] UpdateCounts(FlatLayout const& layout, Queue queue, MemoryResource& memory,
                               bool keeps_all)
        : _layout(&layout), _queue(queue), _drain(queue) {
        if (keeps_all) {
            std::vector<std::uint64_t> const none(layout.parameters().size(), 0);
            set(memory, as_span(none), 0);
        }
    }

    /// @brief Returns whether each parameter has its own number of updates.
    [[nodiscard]] bool is_any() const noexcept { return _counts.size() != 0; }
    [[nodiscard]] std::size_t size() const noexcept { return _counts.size(); }

    /// @brief Returns the rows that slices name: the groups, or the parameters if numbers are kept.
    [[nodiscard]] Group const* rows(Group const* groups) const noexcept {
        return is_any() ? _rows.data() : groups;
    }
    [[nodiscard]] std::size_t size_bytes() const noexcept {
        return _rows.size_bytes() + _counts.size_bytes();
    }

    /// @brief Enqueues this rank's minima of the parameters. @param used as
    /// `GradientDeliveries::noted`
    /// @return `to`, or null if `used` is empty
    std::int64_t* note_unused(std::vector<char> const& used, std::int64_t* to) const {
        for (std::size_t begin = 0; begin < used.size(); begin += NoteUnused::capacity) {
            NoteUnused note{to + begin, smaller(NoteUnused::capacity, used.size() - begin), {}};
            for (std::size_t i = 0; i < note.count; ++i) {
                note.used[i / 64] |= std::uint64_t{used[begin + i] != 0} << (i % 64);
            }
            Backend::run(_queue, note);
        }
        return used.empty() ? nullptr : to;
    }

    /// @brief Enqueues the decision for each parameter. @param unused the reduced minima, or null
    void decide(StepState<StepOf<Config>> const* state, Group const* groups,
                std::int64_t const* unused, double learning_rate) {
        if (is_any()) {
            Backend::run(_queue, DecideParameters<StepOf<Config>>{state, groups, _rows.data(),
                                                                  _counts.data(), unused,
                                                                  _counts.size(), learning_rate});
        }
    }

    /// @brief Sets the updates of every parameter to the number of steps.
    void clear() {
        if (is_any()) {
            Backend::run(_queue, ClearMissed{_counts.data(), _counts.size()});
        }
    }

    /// @brief Returns each parameter's number of updates after `steps` steps. Waits.
    [[nodiscard]] std::vector<std::uint64_t> updates(std::uint64_t steps) const {
        std::vector<std::uint64_t> updates(_layout->parameters().size(), steps);
        auto const counts = to_host(_counts);
        for (std::size_t parameter = 0; parameter < counts.size(); ++parameter) {
            updates[parameter] -= counts[parameter].missed;
        }
        return updates;
    }

    /// @brief Returns the number that each parameter's update has in the step that was decided, the
    /// last of `steps`; 0 if it is left as it is. Empty if no numbers are kept. Waits.
    [[nodiscard]] std::vector<std::uint64_t> numbers(std::uint64_t steps) const {
        if (!is_any()) {
            return {};
        }
        std::vector<std::uint64_t> numbers = updates(steps);
        auto const rows = to_host(_rows);
        for (std::size_t parameter = 0; parameter < numbers.size(); ++parameter) {
            numbers[parameter] = rows[parameter].is_left ? 0 : numbers[parameter];
        }
        return numbers;
    }

    /// @brief Sets each parameter's number of updates after `steps` steps. Keeps the numbers from
    /// now on, unless all are `steps`. Waits.
    /// @return whether slices must name parameters from now on
    [[gnu::cold]] bool set_unequal(MemoryResource& memory, std::span<std::uint64_t const> updates,
                                   std::uint64_t steps) {
        bool const is_first = !is_any();
        bool is_equal = true;
        for (std::uint64_t const count : updates) {
            is_equal = is_equal && count == steps;
        }
        if (!is_equal || !is_first) {
            set(memory, updates, steps);
        }
        return !is_equal && is_first;
    }

private:
    void set(MemoryResource& memory, std::span<std::uint64_t const> updates, std::uint64_t steps) {
        std::size_t const parameters = updates.size();
        if (_counts.size() != parameters) {
            Buffer<Group> rows(memory, parameters, BufferKind::control);
            _counts = Buffer<UpdateCount>(memory, parameters, BufferKind::control);
            _rows = std::move(rows);
        }
        List<UpdateCount> counts(parameters);
        Drain<Backend> const drain(_queue); // a command uses it
        for (std::size_t parameter = 0; parameter < parameters; ++parameter) {
            counts[parameter] = {steps - updates[parameter], _layout->parameter(parameter).group};
        }
        Backend::copy_bytes(_queue, _counts.data(), counts.data(), _counts.size_bytes());
        Backend::synchronise(Backend::record(_queue));
    }

    /// Returns the values of a buffer after everything that was enqueued. Waits.
    template <class T>
    [[nodiscard]] List<T> to_host(Buffer<T> const& buffer) const {
        List<T> values(buffer.size());
        if (!values.empty()) {
            Drain<Backend> const drain(_queue);            // a command uses it
            Backend::synchronise(Backend::record(_queue)); // as in `through_backend`
            Backend::copy_bytes(_queue, values.data(), buffer.data(), buffer.size_bytes());
            Backend::synchronise(Backend::record(_queue));
        }
        return values;
    }

    FlatLayout const* _layout;
    Queue _queue;
    Buffer<Group> _rows;         ///< empty, or one for each parameter
    Buffer<UpdateCount> _counts; ///< the same
    Drain<Backend> _drain;
};

} // namespace ZERO_NAMESPACE::detail
