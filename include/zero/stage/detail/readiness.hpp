#pragma once

#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../layout/flat_layout.hpp"

#include <cstddef>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Tracks which units, parameters and buckets of one micro-step have their gradients.
///
/// A member of `GradientScheduler`. It depends only on the layout, not on data or queues.
class Readiness {
public:
    Readiness() = default;

    [[gnu::cold]] explicit Readiness(FlatLayout const& layout);

    /// @brief Starts a micro-step.
    void reset();

    [[nodiscard]] bool is_unit_ready(std::size_t unit) const { return _is_unit_ready[unit] != 0; }
    [[nodiscard]] bool is_parameter_ready(std::size_t parameter) const {
        return _units_left[parameter] == 0;
    }
    /// @brief Whether any unit of the parameter is ready.
    [[nodiscard]] bool is_started(std::size_t parameter) const {
        return _units_left[parameter] < _layout->parameter(parameter).units.size();
    }
    [[nodiscard]] bool is_launched(std::size_t bucket) const { return _is_launched[bucket] != 0; }
    [[nodiscard]] bool is_complete(std::size_t bucket) const {
        return _parameters_left[bucket] == 0;
    }

    /// @brief Marks the unit's gradients as complete. Call it once per unit and micro-step.
    void mark(std::size_t unit);

    /// @brief The lowest bucket that is not launched; the number of buckets if all are.
    [[nodiscard]] std::size_t next() const noexcept { return _next; }

    void set_launched(std::size_t bucket);

private:
    FlatLayout const* _layout = nullptr;
    std::vector<char> _is_unit_ready;
    std::vector<std::size_t> _units_left;      ///< by parameter
    std::vector<std::size_t> _parameters_left; ///< by bucket
    std::vector<char> _is_launched;
    std::size_t _next = 0;
};

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "readiness.ipp"
#endif
