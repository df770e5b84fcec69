#pragma once

#include <zero/policy/dynamic_loss_scaler.hpp>

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace zero::test {

/// @brief The state after one step.
struct ScalerRow {
    float scale;
    std::uint32_t clean_steps;
    std::uint32_t hysteresis_left;

    friend bool operator==(ScalerRow const&, ScalerRow const&) = default;
    friend std::ostream& operator<<(std::ostream& stream, ScalerRow const& row) {
        return stream << '{' << row.scale << ", " << row.clean_steps << ", " << row.hysteresis_left
                      << '}';
    }
};

/// @brief Plays `steps`, one letter each ('.' clean, 'x' overflow), and returns the state after
/// every one.
inline std::vector<ScalerRow> play(DynamicLossScalerOptions const& options,
                                   std::string const& steps) {
    DynamicLossScaler::validate(options);
    auto state = DynamicLossScaler::initial(options);
    std::vector<ScalerRow> rows;
    for (char const step : steps) {
        state = DynamicLossScaler::next(state, step == 'x', options);
        rows.push_back({state.scale, state.clean_steps, state.hysteresis_left});
    }
    return rows;
}

/// @brief The last scale of a run.
inline float last_scale(DynamicLossScalerOptions const& options, std::string const& steps) {
    return play(options, steps).back().scale;
}

} // namespace zero::test
