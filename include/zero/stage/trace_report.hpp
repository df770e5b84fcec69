#pragma once

#include "../core/detail/namespace.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief How the acquisitions of one unit found its parameters. Counts since construction,
/// evaluations included.
struct UnitGathers {
    std::uint64_t in_time = 0;  ///< acquisitions whose gather was enqueued before them
    std::uint64_t late = 0;     ///< acquisitions that enqueued a gather, for which readers wait
    std::uint64_t resident = 0; ///< acquisitions that needed no gather
    std::uint64_t dropped = 0;  ///< buckets that were gathered in advance and released unused

    /// @brief Adds the counts of another unit.
    constexpr UnitGathers& operator+=(UnitGathers const& other) noexcept {
        in_time += other.in_time;
        late += other.late;
        resident += other.resident;
        dropped += other.dropped;
        return *this;
    }
    friend constexpr bool operator==(UnitGathers, UnitGathers) = default;
};

/// @brief A point at which a micro-step left the recorded order.
struct OrderChange {
    /// The value of `acquired` and `expected` for the end of a micro-step.
    static constexpr std::size_t end = static_cast<std::size_t>(-1);

    std::uint64_t micro_step = 0; ///< number of the micro-step since construction, from 1
    std::size_t position = 0;     ///< acquisitions in that micro-step before it
    std::size_t acquired = end;   ///< the unit that was acquired
    std::size_t expected = end;   ///< the unit of the recorded order
    friend constexpr bool operator==(OrderChange, OrderChange) = default;
};

/// @brief Counts of gathers and acquisitions in a stage that shards parameters.
/// `Engine::trace_report` returns it. In the other stages all counts are 0.
struct TraceReport {
    std::vector<UnitGathers> units;      ///< by unit
    std::uint64_t gathers = 0;           ///< all-gathers of buckets
    std::uint64_t gathered_elements = 0; ///< elements of these all-gathers, padding included
    std::size_t live_elements = 0;       ///< elements gathered now, padding included
    std::size_t most_live_elements = 0;  ///< most elements gathered at once
    std::uint64_t changed_orders = 0;    ///< micro-steps that left the recorded order
    OrderChange first_change{};          ///< the first of them; its `micro_step` is 0 if none

    /// @brief Returns the sum over all units.
    [[nodiscard]] UnitGathers total() const noexcept {
        UnitGathers sum;
        for (UnitGathers const& unit : units) {
            sum += unit;
        }
        return sum;
    }
};

} // namespace ZERO_NAMESPACE
