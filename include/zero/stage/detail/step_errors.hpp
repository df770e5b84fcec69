#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../layout/flat_layout.hpp"
#include "../step_report.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

/// The errors of `StepControl`.
namespace ZERO_NAMESPACE::detail {

/// @throws OutOfOrder naming the step whose report was overwritten
/// @param kept number of reports that are kept
[[noreturn, gnu::cold]] void throw_report_overwritten(std::uint64_t serial, std::size_t kept);

/// @throws NoGradients with the causes and their remedies
/// @param is_zero whether the reported gradients lie in registered memory and are zero
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

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "step_errors.ipp"
#endif
