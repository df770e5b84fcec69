#pragma once

#include "settings.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>

namespace gpt {

/// @brief Linear warm-up, then a cosine down to a tenth.
inline double learning_rate_at(std::size_t step, Settings const& settings) {
    double const warm_up = std::min(40.0, 0.1 * static_cast<double>(settings.steps) + 1.0);
    auto const now = static_cast<double>(step + 1);
    if (now < warm_up) {
        return settings.learning_rate * now / warm_up;
    }
    double const part =
        (now - warm_up) / std::max(1.0, static_cast<double>(settings.steps) - warm_up);
    return settings.learning_rate * (0.1 + 0.9 * 0.5 * (1.0 + std::cos(3.141592653589793 * part)));
}

/// @brief Prints progress lines.
class Progress {
public:
    explicit Progress(Settings const& settings)
        : _settings(&settings), _start(std::chrono::steady_clock::now()) {}

    [[nodiscard]] bool is_due(std::size_t step) const {
        std::size_t const every = std::max<std::size_t>(1, _settings->steps / 15);
        return !_settings->is_quiet
               && ((step + 1) % every == 0 || step == 0 || step + 1 == _settings->steps);
    }

    void show(std::size_t step, double loss, std::size_t tokens_per_step) const {
        double const seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - _start).count();
        double const done = static_cast<double>(step + 1);
        std::printf("step %5zu/%zu  loss of rank 0 %.4f  %8.0f tokens/s  %4.0f s remaining\n",
                    step + 1, _settings->steps, loss,
                    done * static_cast<double>(tokens_per_step) / seconds,
                    seconds / done * (static_cast<double>(_settings->steps) - done));
        std::fflush(stdout);
    }

private:
    Settings const* _settings;
    std::chrono::steady_clock::time_point _start;
};

} // namespace gpt
