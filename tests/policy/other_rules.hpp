#pragma once

#include <cmath>
#include <cstdint>

// The loss scale rules of other systems, transcribed from their sources with their variables, and
// without the library.

namespace zero::test {

/// DeepSpeed: the distance to the last overflow decides, counted in iterations. In double, as in
/// Python.
struct DeepSpeedRule {
    double scale = 65536.0;
    std::int64_t window = 1000;
    double minimum = 1.0;
    int full_hysteresis = 2;
    bool is_consecutive = false;
    std::int64_t iteration = 0;
    std::int64_t last_overflow = -1;
    int hysteresis = full_hysteresis;
    bool throws = false; ///< the last step ended the run

    void step(bool overflow) {
        throws = false;
        if (overflow) {
            if (full_hysteresis == 1 || hysteresis == 1) {
                if (scale == minimum) {
                    throws = true;
                }
                scale = scale / 2.0 > minimum ? scale / 2.0 : minimum;
            } else {
                hysteresis -= 1;
            }
            last_overflow = iteration;
        } else {
            if (is_consecutive) {
                hysteresis = full_hysteresis;
            }
            std::int64_t const stable = iteration - last_overflow - 1;
            if (stable > 0 && stable % window == 0) {
                if (!is_consecutive) {
                    hysteresis = full_hysteresis;
                }
                scale *= 2.0;
            }
        }
        iteration += 1;
    }
};

/// PyTorch's `_amp_update_scale_`: the factors are doubles, the scale is a float.
struct PyTorchRule {
    float scale = 65536.0F;
    int growth_tracker = 0;
    int interval = 2000;
    double growth = 2.0;
    double backoff = 0.5;

    void step(bool overflow) {
        if (overflow) {
            scale = static_cast<float>(static_cast<double>(scale) * backoff);
            growth_tracker = 0;
            return;
        }
        growth_tracker += 1;
        if (growth_tracker == interval) {
            float const grown = static_cast<float>(static_cast<double>(scale) * growth);
            if (std::isfinite(grown)) {
                scale = grown;
            }
            growth_tracker = 0;
        }
    }
};

/// Apex's `update_scale_hysteresis`: PyTorch's rule with a counter that continues below zero.
struct ApexRule {
    PyTorchRule inner;
    int hysteresis = 2;
    int tracker = hysteresis;

    void step(bool overflow) {
        if (overflow) {
            tracker -= 1;
            if (tracker > 0) {
                inner.growth_tracker = 0;
                return;
            }
        }
        inner.step(overflow);
        if (!overflow) {
            tracker = hysteresis;
        }
    }
};

/// Megatron-LM: the scale is a float tensor, and the hysteresis counter continues below zero until
/// a growth.
struct MegatronRule {
    float scale = 4294967296.0F;
    float minimum = 1.0F;
    int growth_tracker = 0;
    int interval = 1000;
    int hysteresis = 2;
    int hysteresis_tracker = hysteresis;

    void step(bool overflow) {
        if (overflow) {
            growth_tracker = 0;
            hysteresis_tracker -= 1;
            if (hysteresis_tracker <= 0) {
                scale = scale * 0.5F > minimum ? scale * 0.5F : minimum;
            }
        } else {
            growth_tracker += 1;
            if (growth_tracker == interval) {
                growth_tracker = 0;
                hysteresis_tracker = hysteresis;
                scale *= 2.0F;
            }
        }
    }
};

} // namespace zero::test
