#pragma once

#include "../../../core/detail/namespace.hpp"

namespace ZERO_NAMESPACE::detail {

/// @brief Waits until a queue has run everything. If the device has failed it runs nothing more, so
/// the function returns.
template <class Backend>
void drain(typename Backend::Queue queue) noexcept {
    // a backend defines `drain` if the thread that destroys an engine may be unable to record an
    // event
    if constexpr (requires { Backend::drain(queue); }) {
        Backend::drain(queue);
    } else {
        try {
            Backend::synchronise(Backend::record(queue));
        } catch (...) {}
    }
}

/// @brief The same for a queue that may be in graph capture and then cannot be waited for: waits
/// for `before_capture` instead.
template <class Backend>
void drain(typename Backend::Queue queue, typename Backend::Event const& before_capture) noexcept {
    if constexpr (requires { Backend::drain(queue, before_capture); }) {
        Backend::drain(queue, before_capture);
    } else {
        drain<Backend>(queue);
    }
}

/// @brief Waits for a queue in its destructor.
///
/// Declare this last in a class that owns buffers: it is destroyed first, even when a constructor
/// throws, and waits until no queued command uses them. Before an assignment to such a class the
/// caller waits for the queue.
template <class Backend>
class Drain {
public:
    explicit Drain(typename Backend::Queue queue) noexcept : _queue(queue) {}
    Drain(Drain&&) noexcept = default;
    Drain& operator=(Drain&&) noexcept = default;
    ~Drain() { drain<Backend>(_queue); }

private:
    typename Backend::Queue _queue;
};

} // namespace ZERO_NAMESPACE::detail
