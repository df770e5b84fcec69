#pragma once

#include "../core/detail/namespace.hpp"

namespace ZERO_NAMESPACE {

/// @brief The loss scale of the current step, a scalar in backend memory.
template <class Engine>
class LossScale {
public:
    /// @brief Called by `Engine::loss_scale`. The engine must outlive the object.
    explicit LossScale(Engine const& engine) noexcept : _engine(&engine) {}

    /// @brief Returns the address of the scale, for commands on the compute queue that were
    /// enqueued after `begin_step`.
    [[nodiscard]] float const* data() const noexcept { return _engine->_control.captured_scale(); }

    /// @brief Returns the scale on the host. Waits until the previous step is done, which decides
    /// it.
    // NOLINTNEXTLINE(google-explicit-constructor): it is a number
    operator float() const { return _engine->_control.load_captured_scale(); }

private:
    Engine const* _engine;
};

} // namespace ZERO_NAMESPACE
