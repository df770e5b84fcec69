#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../layout/flat_layout.hpp"
#include "gradient_evidence.hpp"

#include <cstddef>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Records how this rank delivers gradients: whether memory of the engine can have been
/// written in a micro-step, and the best evidence of a step that there is any gradient.
///
/// A member of `GradientScheduler`. It depends on no type of the engine.
class GradientDeliveries {
public:
    [[gnu::cold]] explicit GradientDeliveries(FlatLayout const& layout)
        : _layout(&layout), _is_begun(layout.parameters().size(), false),
          _is_taken(layout.parameters().size(), false) {
        for (auto const& parameter : layout.parameters()) {
            _is_any_trained = _is_any_trained || (parameter.trainable && parameter.elements != 0);
        }
    }

    /// @brief The evidence of this rank's gradients in this step; `delivered` if its model has
    /// none.
    [[nodiscard]] GradientEvidence evidence() const noexcept { return _evidence; }

    void begin_step() noexcept {
        _evidence = _is_any_trained ? GradientEvidence::nothing : GradientEvidence::delivered;
    }

    void begin_micro_step() {
        _is_begun.assign(_is_begun.size(), false);
        _is_taken.assign(_is_taken.size(), false);
    }

    /// @brief A gradient is leased, and cleared if asked. Returns whether it was leased before in
    /// this micro-step.
    [[nodiscard]] bool begin(std::size_t parameter) noexcept {
        return std::exchange(_is_begun[parameter], true) != 0;
    }
    [[nodiscard]] bool is_begun(std::size_t parameter) const noexcept {
        return _is_begun[parameter] != 0;
    }

    /// @brief Somebody got the address of a gradient, or handed one over.
    /// @param is_engines it lies in memory of the engine; otherwise this is a no-op
    void take(std::size_t parameter, bool is_engines = true) noexcept {
        if (is_engines) {
            _is_taken[parameter] = true;
            _evidence = GradientEvidence::delivered;
        }
    }

    /// @brief Whether memory of the engine can have been written in this micro-step. Uninitialised
    /// memory whose address was not taken was not written.
    [[nodiscard]] bool is_taken(std::size_t parameter) const noexcept {
        return _is_taken[parameter] != 0;
    }

    /// @brief Caller-owned memory is leased. @param is_cleared by the engine, maybe too late
    void lease_callers(std::size_t parameter, bool is_cleared) noexcept {
        if (_evidence != GradientEvidence::delivered
            && _layout->parameter(parameter).elements != 0) {
            _evidence = is_cleared ? GradientEvidence::cleared : GradientEvidence::delivered;
        }
    }

    /// @brief Caller-owned memory is reported; it need not have been leased.
    void report_callers(std::size_t parameter) noexcept {
        if (!is_begun(parameter)) {
            lease_callers(parameter, false);
        }
    }

private:
    FlatLayout const* _layout;
    std::vector<char> _is_begun; ///< per parameter, in this micro-step
    std::vector<char> _is_taken; ///< the same
    GradientEvidence _evidence = GradientEvidence::nothing;
    bool _is_any_trained = false; ///< some parameter has a gradient
};

} // namespace ZERO_NAMESPACE::detail
