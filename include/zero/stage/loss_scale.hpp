#pragma once

#include "../core/detail/namespace.hpp"

namespace ZERO_NAMESPACE {

/// @brief The scale of the current step, as a scalar in the backend's memory.
template <class Engine>
class LossScale {
public:
    /// @brief Given out by `loss_scale()`, and used while the engine lives.
    explicit LossScale(Engine const& engine) noexcept : _engine(&engine) {}

    /// @brief For commands on the compute queue, which were ordered behind the capture.
    [[nodiscard]] float const* data() const noexcept { return _engine->_control.captured_scale(); }

    /// @brief Waits on the host until the scale is known, which it is once the previous step is
    /// done.
    operator float() const {
        return _engine->_control.load_captured_scale();
    } // NOLINT(google-explicit-constructor): it is a number

private:
    Engine const* _engine;
};

} // namespace ZERO_NAMESPACE
