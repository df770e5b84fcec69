#pragma once

/// @file
/// @brief The one place that computes the clip coefficient, decides whether a step is skipped, and
/// sets the next loss scale.

#include "../../../core/detail/namespace.hpp"
#include "../../../ops/arithmetic.hpp"
#include "../../../ops/counter_random.hpp"
#include "../../../ops/exact_sum.hpp"
#include "../../../ops/host_device.hpp"
#include "../../../policy/master_weights_policy.hpp"
#include "../../step_report.hpp"
#include "../common/step_state.hpp"
#include "report_store.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace ZERO_NAMESPACE::detail {

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
               ? std::numeric_limits<double>::infinity()
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
template <class Config, class Joint = NotJoint>
struct DecideStep {
    StepState<Config>* state;
    GroupState<typename Config::Optimizer>* groups;
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
        using Scaler = typename Config::LossScaler;
        StepState<Config>& s = *state;
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
                constexpr double most = std::numeric_limits<float>::max();
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
            if constexpr (Config::MasterWeights::form == MasterForm::stochastic) {
                s.decision.random_key = ops::random_key(s.master_options.seed, s.step_count);
            } else if constexpr (Config::rounds_states) {
                s.decision.random_key = ops::random_key(0, s.step_count);
            }
            for (std::size_t group = 0; group < group_count; ++group) {
                groups[group].factor =
                    groups[group].is_clipped ? s.decision.factor : static_cast<float>(base);
                groups[group].hyper = Config::Optimizer::hyper(
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
    static constexpr bool is_cut = ModelParallelCommunicator<typename Config::Communicator>;
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
