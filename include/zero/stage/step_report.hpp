#pragma once

#include "../core/detail/namespace.hpp"
#include "step_figures.hpp"

#include <vector>

namespace ZERO_NAMESPACE {

/// @brief The outcome of one step. `StepTicket::report` returns it.
///
/// The figures of the gradients describe all trainable elements of the model, each counted once,
/// before clipping. They depend on the reduced gradients alone: not on stage, partitioner, buckets
/// or the number of ranks. A skipped step has them as well: they say why it was skipped.
struct StepReport : StepFigures {
    /// The norm of each parameter group, as `gradient_norm` is, if `ReportOptions::group_norms`;
    /// otherwise empty. Infinite for a group with an element that is not finite, 0 for one without
    /// trainable elements.
    std::vector<double> group_norms{};
};

} // namespace ZERO_NAMESPACE
