#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../ops/host_device.hpp"
#include "step_state.hpp"

/// Small commands on the scalars of a step, which `StepControl` enqueues; `DecideStep` is the large
/// one. They are named functors outside that class because a device runs them as well.
namespace ZERO_NAMESPACE::detail {

/// @brief Fixes the loss scale of the step that begins.
template <class Config>
struct CaptureScale {
    StepState<Config>* state;
    ZERO_HOST_DEVICE void operator()() const { state->captured_scale = state->scaler.scale; }
};

/// @brief Resets the inspection of the gradients.
template <class Config>
struct ClearInspection {
    StepState<Config>* state;
    ZERO_HOST_DEVICE void operator()() const { state->inspection.clear(); }
};

/// @brief `*to = value`
template <class T>
struct Assign {
    T* to;
    T value;
    ZERO_HOST_DEVICE void operator()() const { *to = value; }
};

} // namespace ZERO_NAMESPACE::detail
