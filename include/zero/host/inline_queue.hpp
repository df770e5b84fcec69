#pragma once

#include "../core/detail/namespace.hpp"
#include "queue.hpp"

namespace ZERO_NAMESPACE::host {

/// @brief Runs each command immediately on the thread that enqueues it. Exceptions of a command
/// propagate to that thread. Stateless.
class InlineQueue final : public Queue {
public:
    [[nodiscard]] Event record() override { return {}; }

    /// @brief Blocks the calling thread until the event is complete.
    void wait(Event const& event) override { event.synchronise(); }
    void rethrow_failure() const override {}

private:
    void push(Command command) override { command(); }
};

} // namespace ZERO_NAMESPACE::host
