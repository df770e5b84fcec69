#pragma once

#include "../../../core/detail/namespace.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../stage_options.hpp"
#include "../common/step_state.hpp"

#include <cstddef>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Records how this rank delivers gradients: which memory of the engine may have been
/// written in a micro-step, the best evidence in a step that a gradient exists, and under
/// `UnusedParameters::leave` which parameters had one.
///
/// A member of `GradientScheduler`. It depends on no type of the engine.
class GradientDeliveries {
public:
    [[gnu::cold]] GradientDeliveries(FlatLayout const& layout, UnusedParameters unused)
        : _layout(&layout), _is_begun(layout.parameters().size(), false),
          _is_taken(layout.parameters().size(), false),
          _is_noted(unused == UnusedParameters::leave ? layout.parameters().size() : 0, false),
          _is_unused(_is_noted.size(), false) {
        for (auto const& parameter : layout.parameters()) {
            _is_any_trained = _is_any_trained || (parameter.trainable && parameter.elements != 0);
        }
    }

    /// @brief The evidence of this rank's gradients in this step; `delivered` if its model has
    /// none.
    [[nodiscard]] GradientEvidence evidence() const noexcept { return _evidence; }

    void begin_step() noexcept {
        _evidence = _is_any_trained ? GradientEvidence::nothing : GradientEvidence::delivered;
        _is_noted.assign(_is_noted.size(), false);
    }

    void begin_micro_step() {
        _is_begun.assign(_is_begun.size(), false);
        _is_taken.assign(_is_taken.size(), false);
        _is_unused.assign(_is_unused.size(), false);
    }

    /// @brief Notes that a gradient is leased. Returns whether it was already leased in this
    /// micro-step.
    [[nodiscard]] bool begin(std::size_t parameter) noexcept {
        return std::exchange(_is_begun[parameter], true) != 0;
    }
    [[nodiscard]] bool is_begun(std::size_t parameter) const noexcept {
        return _is_begun[parameter] != 0;
    }

    /// @brief Notes that the caller got the address of a gradient, or handed one over.
    /// @param is_engines whether it lies in memory of the engine; otherwise this is a no-op
    void take(std::size_t parameter, bool is_engines = true) noexcept {
        if (is_engines) {
            _is_taken[parameter] = true;
            _evidence = GradientEvidence::delivered;
        }
    }

    /// @brief Whether the engine's memory of a gradient may have been written in this micro-step:
    /// only if the caller took its address or handed a gradient over.
    [[nodiscard]] bool is_taken(std::size_t parameter) const noexcept {
        return _is_taken[parameter] != 0;
    }

    /// @brief Notes that nothing was added to a gradient in this micro-step, although its memory
    /// was asked for or its unit is reported. A no-op unless parameters are noted.
    void note_unused(std::size_t parameter) noexcept {
        if (!_is_unused.empty()) {
            _is_unused[parameter] = true;
        }
    }

    /// @brief Notes that a parameter has a gradient in this step. A no-op unless it is noted.
    void note(std::size_t parameter) noexcept {
        if (!_is_noted.empty()) {
            _is_noted[parameter] = true;
        }
    }

    /// @brief Notes which parameters had a gradient in the micro-step that ends.
    /// @param is_written of a parameter
    template <class IsWritten>
    void end_micro_step(IsWritten const& is_written) {
        for (std::size_t parameter = 0; parameter < _is_noted.size(); ++parameter) {
            if (_is_noted[parameter] == 0 && _is_unused[parameter] == 0 && is_written(parameter)) {
                note(parameter);
            }
        }
    }

    /// @brief Per parameter: had a gradient on this rank in this step. Empty unless it is noted.
    [[nodiscard]] std::vector<char> const& noted() const noexcept { return _is_noted; }

    /// @brief Notes that caller-owned memory is leased, or reported without a lease.
    /// @param is_doubtful whether the engine clears it, perhaps too late, or it was not leased
    void lease_callers(std::size_t parameter, bool is_doubtful) noexcept {
        if (_evidence != GradientEvidence::delivered
            && _layout->parameter(parameter).elements != 0) {
            _evidence = is_doubtful ? GradientEvidence::doubtful : GradientEvidence::delivered;
        }
    }

    /// @brief Notes that caller-owned memory is reported as ready; it need not have been leased.
    void report_callers(std::size_t parameter) noexcept {
        if (!is_begun(parameter)) {
            lease_callers(parameter, true);
        }
    }

private:
    FlatLayout const* _layout;
    std::vector<char> _is_begun;  ///< per parameter: leased in this micro-step
    std::vector<char> _is_taken;  ///< per parameter: may have been written in this micro-step
    std::vector<char> _is_noted;  ///< per parameter, or empty: had a gradient in this step
    std::vector<char> _is_unused; ///< the same: had none in this micro-step, as the caller says
    GradientEvidence _evidence = GradientEvidence::nothing;
    bool _is_any_trained = false; ///< some parameter has a gradient
};

} // namespace ZERO_NAMESPACE::detail
