#pragma once

#include "../../core/detail/namespace.hpp"

namespace ZERO_NAMESPACE::detail {

/// @brief Waits until a queue has run everything. A device that failed runs nothing any more: then
/// there is nothing to wait for.
template <class Backend>
void drain(typename Backend::Queue queue) noexcept {
    if constexpr (requires {
                      Backend::drain(queue);
                  }) { // where the thread that destroys an engine may not be able to record
        Backend::drain(queue);
    } else {
        try {
            Backend::synchronise(Backend::record(queue));
        } catch (...) {}
    }
}

/// @brief The same where a queue that is recorded into a graph cannot be waited for: then for a
/// point before that.
template <class Backend>
void drain(typename Backend::Queue queue, typename Backend::Event const& before_capture) noexcept {
    if constexpr (requires { Backend::drain(queue, before_capture); }) {
        Backend::drain(queue, before_capture);
    } else {
        drain<Backend>(queue);
    }
}

/// @brief Last member of a class that owns buffers, so the first to go, also when a constructor
/// throws: nothing is freed while commands on the queue still use it. Who assigns to such a class
/// waits for the queue before.
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
