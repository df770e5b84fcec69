#pragma once

namespace zero::detail {

/// @brief Last member of a class that owns buffers, so the first to go, also when a constructor throws: nothing is freed while commands on
/// the queue still use it.
template <class Backend>
class Drain {
public:
    explicit Drain(typename Backend::Queue queue) noexcept : _queue(queue) {}
    Drain(Drain const&) = delete;
    Drain& operator=(Drain const&) = delete;
    ~Drain() { Backend::synchronize(Backend::record(_queue)); }

private:
    typename Backend::Queue _queue;
};

} // namespace zero::detail
