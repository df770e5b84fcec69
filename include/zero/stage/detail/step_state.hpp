#pragma once

#include "../../backend/update_decision.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../ops/exact_sum.hpp"
#include "../../ops/host_device.hpp"
#include "../../policy/master_weights.hpp"
#include "../step_report.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace ZERO_NAMESPACE::detail {

/// @brief Everything of a step that host and queues share, in the backend's memory. Only commands
/// on the communication queue write it.
template <class Config>
struct StepState {
    static constexpr std::size_t reports_kept = 16;

    typename Config::LossScaler::Options scaler_options{};
    typename Config::LossScaler::State scaler{};
    float captured_scale = 1.0F;
    UpdateDecision decision{};
    bool is_exhausted = false; ///< the last step overflowed at the smallest loss scale
    std::uint64_t step_count = 0;
    [[no_unique_address]] typename Config::MasterWeights::Options master_options{};
    ops::Inspection inspection{};
    std::int64_t weight = 0; ///< ReductionKind::weighted_mean: what the caller's gradients are sums
                             ///< over, of all ranks
    std::uint64_t last_serial = 0; ///< of the report that was written last
    std::array<StepReport, reports_kept> reports{};
};

/// @brief One parameter group in the backend's memory.
template <class Optimizer>
struct GroupState {
    typename Optimizer::Options options{};
    double learning_rate_factor = 1.0;
    typename Optimizer::Hyper hyper{}; ///< of the current step
};

/// @name Commands on the scalars of a step. They have names, and not bodies in the class that
/// enqueues them, because a device runs them, too.
/// @{

template <class Config>
struct CaptureScale {
    StepState<Config>* state;
    ZERO_HOST_DEVICE void operator()() const { state->captured_scale = state->scaler.scale; }
};

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

/// @}

} // namespace ZERO_NAMESPACE::detail
