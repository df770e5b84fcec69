#pragma once

#include "../core/detail/namespace.hpp"
#include "dynamic_loss_scaler.hpp"

#include <cstdint>
#include <limits>

/// Options of `DynamicLossScaler` that play the rules of other systems, step by step:
/// `docs/loss_scalers.md` has the tables.
///
/// A scale here is a float and, like its inverse, a number. So it ends at 2^-126, where those
/// without a floor go on to zero, and growth beyond the largest float is held, where those without
/// a ceiling go on to infinity. That is all that differs, and no run that learns gets there.
namespace ZERO_NAMESPACE::loss_scaler_presets {

/// @brief DeepSpeed's fp16 defaults (`DynamicLossScaler` of deepspeed/runtime/fp16/loss_scaler.py,
/// which its ZeRO stages use, with the defaults of deepspeed/runtime/precision_config.py; versions
/// that count a `stable_interval`).
///
/// The scale grows on clean step number window + 1 after the start or an overflow and then every
/// window, which restores the hysteresis. An overflow at the minimum that would shrink the scale
/// throws LossScaleExhausted.
/// @param is_consecutive DeepSpeed's `consecutive_hysteresis`: every clean step restores the
/// hysteresis
[[nodiscard]] constexpr DynamicLossScalerOptions deepspeed(bool is_consecutive = false) noexcept {
    return {.initial_scale = 0x1p16F,
            .growth_factor = 2.0F,
            .backoff_factor = 0.5F,
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
/// Every overflow halves the scale, without a floor; growth that would give infinity is left out.
/// The one difference is the floor, 2^-126.
[[nodiscard]] constexpr DynamicLossScalerOptions pytorch() noexcept {
    return {.initial_scale = 0x1p16F,
            .growth_factor = 2.0F,
            .backoff_factor = 0.5F,
            .growth_interval = 2000,
            .growth_delay = 0,
            .hysteresis = 1,
            .consecutive_hysteresis = false,
            .minimum = smallest_loss_scale,
            .maximum = std::numeric_limits<float>::max(),
            .at_maximum = AtMaximumScale::hold,
            .at_minimum = AtMinimumScale::hold};
}

/// @brief Megatron-LM (`DynamicGradScaler` of megatron/core/optimizer/grad_scaler.py with the
/// defaults of megatron/training/arguments.py).
///
/// The hysteresis is restored by growth only; the scale holds at its minimum.
[[nodiscard]] constexpr DynamicLossScalerOptions megatron() noexcept {
    return {.initial_scale = 0x1p32F,
            .growth_factor = 2.0F,
            .backoff_factor = 0.5F,
            .growth_interval = 1000,
            .growth_delay = 0,
            .hysteresis = 2,
            .consecutive_hysteresis = false,
            .minimum = 1.0F,
            .maximum = std::numeric_limits<float>::max(),
            .at_maximum = AtMaximumScale::hold,
            .at_minimum = AtMinimumScale::hold};
}

/// @brief Apex's `update_scale_hysteresis` (csrc/update_scale_hysteresis.cu), which sets no
/// defaults: scale, factors and interval are PyTorch's.
///
/// PyTorch's rule behind a hysteresis: an overflow uses that up first, and starts the count of
/// clean steps anew; every clean step restores it.
/// @param hysteresis overflows in a row until the first reduction, at least 1
[[nodiscard]] constexpr DynamicLossScalerOptions apex(std::uint32_t hysteresis = 2) noexcept {
    DynamicLossScalerOptions options = pytorch();
    options.hysteresis = hysteresis;
    options.consecutive_hysteresis = true;
    return options;
}

} // namespace ZERO_NAMESPACE::loss_scaler_presets
