#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../layout/flat_layout.hpp"

#include <cstddef>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Which units, parameters and buckets of one micro-step have their gradients. Knows the
/// layout only, no data and no queue.
class Readiness {
public:
    Readiness() = default;

    explicit Readiness(FlatLayout const& layout)
        : _layout(&layout), _is_unit_ready(layout.units()), _units_left(layout.parameters().size()),
          _parameters_left(layout.trainable_buckets()), _is_launched(layout.trainable_buckets()) {
        reset();
    }

    /// @brief Start of a micro-step.
    void reset() {
        _is_unit_ready.assign(_is_unit_ready.size(), false);
        _is_launched.assign(_is_launched.size(), false);
        _parameters_left.assign(_parameters_left.size(), 0);
        _next = 0;
        for (std::size_t parameter = 0; parameter < _units_left.size(); ++parameter) {
            auto const& spec = _layout->parameter(parameter);
            _units_left[parameter] = spec.trainable ? spec.units.size() : 0;
            if (spec.trainable) {
                for (std::size_t const bucket : _layout->parameter_buckets(parameter)) {
                    ++_parameters_left[bucket];
                }
            }
        }
    }

    [[nodiscard]] bool is_unit_ready(std::size_t unit) const { return _is_unit_ready[unit]; }
    [[nodiscard]] bool is_parameter_ready(std::size_t parameter) const {
        return _units_left[parameter] == 0;
    }
    /// @brief Some unit of the parameter is ready.
    [[nodiscard]] bool is_started(std::size_t parameter) const {
        return _units_left[parameter] < _layout->parameter(parameter).units.size();
    }
    [[nodiscard]] bool is_launched(std::size_t bucket) const { return _is_launched[bucket]; }
    [[nodiscard]] bool is_complete(std::size_t bucket) const {
        return _parameters_left[bucket] == 0;
    }

    /// @brief The unit's gradients are there; `visit(parameter)` for each parameter that is
    /// complete by it. Once per micro-step.
    template <class Visitor>
    void mark(std::size_t unit, Visitor&& visit) {
        _is_unit_ready[unit] = true;
        for (std::size_t const parameter : _layout->unit_parameters(unit)) {
            if (_layout->parameter(parameter).trainable && --_units_left[parameter] == 0) {
                visit(parameter);
                for (std::size_t const bucket : _layout->parameter_buckets(parameter)) {
                    --_parameters_left[bucket];
                }
            }
        }
    }

    /// @brief The lowest bucket that was not launched yet; the number of buckets when all were.
    [[nodiscard]] std::size_t next() const noexcept { return _next; }

    void set_launched(std::size_t bucket) {
        _is_launched[bucket] = true;
        while (_next < _is_launched.size() && _is_launched[_next]) {
            ++_next;
        }
    }

private:
    FlatLayout const* _layout = nullptr;
    std::vector<char> _is_unit_ready;
    std::vector<std::size_t> _units_left;
    std::vector<std::size_t> _parameters_left;
    std::vector<char> _is_launched;
    std::size_t _next = 0;
};

} // namespace ZERO_NAMESPACE::detail
