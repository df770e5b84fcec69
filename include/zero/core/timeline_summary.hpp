#pragma once

#include "detail/namespace.hpp"
#include "timeline_phase.hpp"

#include <array>
#include <cstddef>

namespace ZERO_NAMESPACE {

/// @brief The sums of a `Timeline`, in seconds.
struct TimelineSummary {
    std::array<double, timeline_phases> seconds{}; ///< by phase, waits for peers included
    double communication = 0.0; ///< time in which at least one collective was in progress
    double exposed = 0.0;       ///< the part of it during which the model stood still
    std::size_t spans = 0;      ///< complete spans
    std::size_t dropped = 0;    ///< spans for which the timeline had no room

    /// @brief The share of the communication that ran beside the model: 0 to 1, and 1 if there
    /// was no communication.
    [[nodiscard]] double hidden_share() const noexcept {
        return communication > 0.0 ? 1.0 - exposed / communication : 1.0;
    }
};

} // namespace ZERO_NAMESPACE
