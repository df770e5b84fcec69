#pragma once

#include "skip_watch.hpp"

#include "../../../core/detail/text.hpp"
#include "../../../core/detail/throw_error.hpp"
#include "../../../core/error.hpp"

#include <string>

namespace ZERO_NAMESPACE::detail {

/// @brief Describes an element by its parameter. @param element index counted through all
/// parameters in registration order
[[gnu::cold]] inline std::string locate_element(FlatLayout const& layout, std::int64_t element) {
    if (element < 0) {
        return "in another part of the model";
    }
    auto const index = static_cast<std::size_t>(element);
    for (std::size_t parameter = 0; parameter < layout.parameters().size(); ++parameter) {
        auto const& spec = layout.parameter(parameter);
        if (index >= layout.first_element(parameter)
            && index - layout.first_element(parameter) < spec.elements) {
            return text({"element ", index - layout.first_element(parameter), " of parameter '",
                         spec.name, "'"});
        }
    }
    return text({"element ", element});
}

ZERO_COLD_INLINE void throw_report_overwritten(std::uint64_t serial, std::size_t kept) {
    throw_error<OutOfOrder>({"zero: the report of step ", serial,
                             " was overwritten; read it before ", kept,
                             " further steps are enqueued."});
}

ZERO_COLD_INLINE void throw_no_gradients(bool is_zero, char const* call, int rank) {
    if (is_zero) {
        throw_error<NoGradients>(
            {"zero: every gradient of the first step is exactly zero on every rank, and lay in "
             "registered memory. Either begin_gradients(unit) or gradients(unit) cleared it after "
             "the backward pass: call it before, or pass GradientWrites::overwritten if the "
             "trainer clears that memory itself. Or gradients_ready(unit) came before the backward "
             "pass: call it after. The first step changed nothing (rank ",
             rank, ")."});
    }
    if (call != nullptr) {
        throw_error<NoGradients>(
            {"zero: no backward pass reached a trained parameter in this step, which changed "
             "nothing (rank ",
             rank, "); call ", call,
             " in each micro-step, on a loss that depends on the parameters."});
    }
    throw_error<NoGradients>(
        {"zero: no rank reported a gradient in this step, which changed nothing (rank ", rank,
         "); write to the spans of gradients(unit), call hand_over(), or register the memory that "
         "the backward pass writes as 'gradient'; then call gradients_ready(unit) after the "
         "backward pass of each unit."});
}

ZERO_COLD_INLINE void throw_non_finite(FlatLayout const& layout, StepReport const& report,
                                       int rank) {
    throw_error<NonFiniteGradients>(
        {"zero: ", report.non_finite_count,
         report.non_finite_count == 1 ? " gradient is" : " gradients are",
         " infinite or NaN, the first is ", locate_element(layout, report.first_non_finite),
         "; the step changed nothing (seen by rank ", rank, ")."});
}

/// @brief Says why a step was skipped.
[[gnu::cold]] inline std::string skip_cause(FlatLayout const& layout, StepFigures const& report) {
    if (report.non_finite_count != 0) {
        return text({report.non_finite_count,
                     report.non_finite_count == 1 ? " gradient is" : " gradients are",
                     " infinite or NaN, first ", locate_element(layout, report.first_non_finite)});
    }
    if (report.is_too_large) {
        return text({"the gradient norm ", report.gradient_norm, " is above the ",
                     report.norm_limit, " of skip_above_norm"});
    }
    return report.has_gradients ? "the total weight is 0" : "no rank reported a gradient";
}

ZERO_COLD_INLINE std::string skip_text(FlatLayout const& layout, StepFigures const& report,
                                       int rank) {
    return text({"zero: step ", report.serial, " was skipped: ", skip_cause(layout, report),
                 "; it changed no weight and no optimizer state (seen by rank ", rank, ")."});
}

ZERO_COLD_INLINE void throw_too_many_skips(FlatLayout const& layout, StepFigures const& report,
                                           int rank) {
    throw_error<TooManySkips>(
        {"zero: ", report.skipped_in_a_row, " steps in a row were skipped, up to step ",
         report.serial, ", the last because ", skip_cause(layout, report),
         "; the step after it changed nothing either; find the cause, or raise skip_limit",
         report.is_too_large ? ", the limit or factor of skip_above_norm, or let its running norm "
                               "begin anew (TrainingState::set_running_norm({}))"
                             : "",
         " (seen by rank ", rank, ")."});
}

ZERO_COLD_INLINE void throw_exhausted(FlatLayout const& layout, StepReport const& report,
                                      int rank) {
    throw_error<LossScaleExhausted>({"zero: the gradients overflowed at the smallest loss scale ",
                                     report.loss_scale, ", first in ",
                                     locate_element(layout, report.first_non_finite),
                                     "; the step changed nothing (seen by rank ", rank, ")."});
}

} // namespace ZERO_NAMESPACE::detail
