#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../ops/host_device.hpp"
#include "gradient_evidence.hpp"
#include "order_evidence.hpp"
#include "step_state.hpp"

#include <cstdint>

/// Small commands on the scalars of a step, which `StepControl` enqueues; `DecideStep` is the large
/// one. They are named functors outside that class because a device runs them as well.
namespace ZERO_NAMESPACE::detail {

/// @brief Fixes the loss scale of the step that begins.
template <class Config>
struct CaptureScale {
    StepState<Config>* state;
    ZERO_HOST_DEVICE void operator()() const { state->captured_scale = state->scaler.scale; }
};

/// @brief Resets the inspection of the gradients, and notes how this rank delivered them and in
/// which order it acquired units.
template <class Config>
struct ClearInspection {
    StepState<Config>* state;
    GradientEvidence evidence;
    OrderEvidence order;
    ZERO_HOST_DEVICE void operator()() const {
        state->integers.inspection.clear();
        state->integers.inspection.first_non_finite = static_cast<std::int64_t>(evidence);
        state->integers.agreement.set(order);
    }
};

/// @brief `*to = value`
template <class T>
struct Assign {
    T* to;
    T value;
    ZERO_HOST_DEVICE void operator()() const { *to = value; }
};

} // namespace ZERO_NAMESPACE::detail
