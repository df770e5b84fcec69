#pragma once

#include "../core/detail/namespace.hpp"

#include <cstdint>
#include <utility>

namespace ZERO_NAMESPACE {

/// @brief Identifies one call of `step`. The engine must outlive it.
template <class Engine>
class StepTicket {
public:
    StepTicket(Engine& engine, std::uint64_t serial, typename Engine::Event done) noexcept
        : _engine(&engine), _serial(serial), _done(std::move(done)) {}

    /// @brief Waits on the host until the step is done and returns its report.
    /// @throws OutOfOrder after 16 further steps were enqueued; any exception of a command of the
    /// step or of the model
    [[nodiscard]] auto report() const { return _engine->report(_serial, _done); }

    /// @brief Waits on the host until the step is done. Unlike `report` it may be called after any
    /// number of further steps. @throws what a command of the step or of the model threw
    void wait() const { _engine->wait(_done); }

    /// @brief The event after the step on the communication queue; caller-owned queues may wait for
    /// it.
    [[nodiscard]] typename Engine::Event const& done() const noexcept { return _done; }

private:
    Engine* _engine;
    std::uint64_t _serial;
    typename Engine::Event _done;
};

} // namespace ZERO_NAMESPACE
