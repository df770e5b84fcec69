#pragma once

namespace zero::detail {

/// @brief Last member of a class that owns buffers, so the first to go, also when a constructor throws: nothing is freed while commands on
/// the queue still use it. Who assigns to such a class waits for the queue before.
template <class Backend>
class Drain {
public:
    explicit Drain(typename Backend::Queue queue) noexcept : _queue(queue) {}
    Drain(Drain&&) noexcept = default;
    Drain& operator=(Drain&&) noexcept = default;
    ~Drain() { Backend::synchronize(Backend::record(_queue)); }

private:
    typename Backend::Queue _queue;
};

} // namespace zero::detail
