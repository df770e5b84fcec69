#pragma once

#include "../core/detail/namespace.hpp"

namespace ZERO_NAMESPACE {

/// @brief Further figures of the reduced gradients in every `StepReport`. Off, they cost nothing.
///
/// Each one adds a pass over the gradients that this rank owns, or replaces the inspection by a
/// slightly slower one. It also adds integers to a collective that the step sends anyway. A step
/// with one of them inspects its gradients: its report has the norm and the count of non-finite
/// elements. No figure changes a bit of a result.
struct ReportOptions {
    bool zero_gradients = false; ///< `StepReport::zero_gradients`
    bool group_norms = false;    ///< `StepReport::group_norms`

    /// @brief Returns whether any figure is asked for.
    [[nodiscard]] constexpr bool is_any() const noexcept { return zero_gradients || group_norms; }
};

} // namespace ZERO_NAMESPACE
