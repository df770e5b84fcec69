#pragma once

#include "../../core/detail/namespace.hpp"

namespace ZERO_NAMESPACE::detail {

/// @brief One parameter group in backend memory, or one parameter if updates are counted for each;
/// then only those of the current step are used. `StepControl` owns the arrays of them.
template <class Optimizer>
struct GroupState {
    typename Optimizer::Options options{};
    double learning_rate_factor = 1.0;
    typename Optimizer::Hyper hyper{}; ///< for the current step
    bool is_left = false;              ///< the current step leaves the parameter as it is
    bool is_clipped = true;
    float factor =
        1.0F; ///< multiplies the gradients of the current step: unscales, averages, clips
};

} // namespace ZERO_NAMESPACE::detail
