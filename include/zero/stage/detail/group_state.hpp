#pragma once

#include "../../core/detail/namespace.hpp"

namespace ZERO_NAMESPACE::detail {

/// @brief One parameter group in backend memory. `StepControl` owns the array of them.
template <class Optimizer>
struct GroupState {
    typename Optimizer::Options options{};
    double learning_rate_factor = 1.0;
    typename Optimizer::Hyper hyper{}; ///< for the current step
    bool is_clipped = true;
    float factor =
        1.0F; ///< multiplies the gradients of the current step: unscales, averages, clips
};

} // namespace ZERO_NAMESPACE::detail
