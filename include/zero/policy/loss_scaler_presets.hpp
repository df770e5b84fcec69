#pragma once

#include "../core/detail/namespace.hpp"
#include "dynamic_loss_scaler.hpp"

#include <cstdint>
#include <limits>

/// @brief Options of `DynamicLossScaler` that reproduce the rules of other systems step by step.
/// `docs/loss_scalers.md` has a table.
///
/// A scale is a float whose inverse is finite. So it stops at 2^-126, where systems without a
/// minimum continue to zero. Growth beyond the largest float is dropped, where systems without a
/// maximum continue to infinity. There is no other difference, and no run that learns reaches these
/// limits.
namespace ZERO_NAMESPACE::loss_scaler_presets {

/// @brief DeepSpeed's fp16 defaults: `DynamicLossScaler` of deepspeed/runtime/fp16/loss_scaler.py,
/// as its ZeRO stages use it, with the defaults of deepspeed/runtime/precision_config.py. Applies
/// to versions that count a `stable_interval`.
///
/// The scale grows on clean step window + 1 after the start or an overflow, and then every window.
/// Growth restores the hysteresis. An overflow that would shrink the scale below the minimum throws
/// LossScaleExhausted.
/// @param is_consecutive DeepSpeed's `consecutive_hysteresis`: every clean step restores the
/// hysteresis
[[nodiscard]] constexpr DynamicLossScalerOptions deepspeed(bool is_consecutive = false) noexcept {
    return {.initial_scale = 0x1p16F,
            .growth_factor = 2.0,
            .backoff_factor = 0.5,
            .growth_interval = 1000,
            .growth_delay = 1,
            .hysteresis = 2,
            .consecutive_hysteresis = is_consecutive,
            .minimum = 1.0F,
            .maximum = std::numeric_limits<float>::max(),
            .at_maximum = AtMaximumScale::hold,
            .at_minimum = AtMinimumScale::throw_error};
}

/// @brief PyTorch's `torch.amp.GradScaler` (torch/amp/grad_scaler.py and `_amp_update_scale_`,
/// ATen/native/cuda/AmpKernels.cu).
///
/// Every overflow halves the scale, without a minimum. Growth that would give infinity is dropped.
/// The only difference is the minimum, 2^-126.
[[nodiscard]] constexpr DynamicLossScalerOptions pytorch() noexcept {
    return {.initial_scale = 0x1p16F,
            .growth_factor = 2.0,
            .backoff_factor = 0.5,
            .growth_interval = 2000,
            .growth_delay = 0,
            .hysteresis = 1,
            .consecutive_hysteresis = false,
            .minimum = smallest_loss_scale,
            .maximum = std::numeric_limits<float>::max(),
            .at_maximum = AtMaximumScale::hold,
            .at_minimum = AtMinimumScale::hold};
}

/// @brief Megatron-LM's `DynamicGradScaler` (megatron/core/optimizer/grad_scaler.py) with the
/// defaults of megatron/training/arguments.py.
///
/// Only growth restores the hysteresis. An overflow at the minimum keeps the scale.
[[nodiscard]] constexpr DynamicLossScalerOptions megatron() noexcept {
    return {.initial_scale = 0x1p32F,
            .growth_factor = 2.0,
            .backoff_factor = 0.5,
            .growth_interval = 1000,
            .growth_delay = 0,
            .hysteresis = 2,
            .consecutive_hysteresis = false,
            .minimum = 1.0F,
            .maximum = std::numeric_limits<float>::max(),
            .at_maximum = AtMaximumScale::hold,
            .at_minimum = AtMinimumScale::hold};
}

/// @brief Apex's `update_scale_hysteresis` (csrc/update_scale_hysteresis.cu). Apex sets no
/// defaults; scale, factors and interval are PyTorch's.
///
/// PyTorch's rule with a hysteresis: an overflow first decrements the hysteresis and restarts the
/// count of clean steps. Every clean step restores the hysteresis.
/// @param hysteresis consecutive overflows until the first reduction, at least 1
[[nodiscard]] constexpr DynamicLossScalerOptions apex(std::uint32_t hysteresis = 2) noexcept {
    DynamicLossScalerOptions options = pytorch();
    options.hysteresis = hysteresis;
    options.consecutive_hysteresis = true;
    return options;
}

} // namespace ZERO_NAMESPACE::loss_scaler_presets
