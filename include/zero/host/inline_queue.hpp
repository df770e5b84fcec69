#pragma once

#include "../core/detail/namespace.hpp"
#include "queue.hpp"

namespace ZERO_NAMESPACE::host {

/// @brief Runs a command at once, on the thread that enqueues it; its exceptions come out there.
/// Waiting blocks that thread. Stateless.
class InlineQueue final : public Queue {
public:
    [[nodiscard]] Event record() override { return {}; }

    /// @brief Waits on the calling thread, at once.
    void wait(Event const& event) override { event.synchronise(); }
    void rethrow_failure() const override {}

private:
    void push(Command command) override { command(); }
};

} // namespace ZERO_NAMESPACE::host
