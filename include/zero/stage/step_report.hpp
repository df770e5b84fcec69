#pragma once

#include "../core/detail/namespace.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE {

/// @brief What one step did.
struct StepReport {
    std::uint64_t serial = 0;     ///< number of this call of `step`, from 1
    std::uint64_t step_count = 0; ///< steps that were not skipped, this one included
    bool is_skipped =
        false; ///< parameters, master weights, moments and step count are unchanged by one bit
    bool has_norm = false;         ///< the gradients were inspected (clipping, a loss scaler, or
                                   ///< `non_finite` other than `step`)
    double gradient_norm = 0.0;    ///< global, of the unscaled and averaged gradients, before
                                   ///< clipping; infinite when one is not finite
    float clip_coefficient = 1.0F; ///< min(1, max_norm / (norm + 1e-6))
    std::int64_t non_finite_count =
        0; ///< elements of the reduced gradients that are infinite or NaN
    std::int64_t first_non_finite =
        -1; ///< the first of them, counted through all parameters in registration order; -1: none
    float loss_scale = 1.0F; ///< the one of this step
    float next_loss_scale =
        1.0F; ///< the one of the next step, which this one's overflow or success decided
};

} // namespace ZERO_NAMESPACE
