#pragma once

#include "../core/detail/namespace.hpp"
#include "detail/decorator.hpp"
#include "traffic_count.hpp"

namespace ZERO_NAMESPACE {

/// @brief A communicator that counts the calls of another communicator and the payload of each
/// call, as the caller passed it. It has the operations of the other one, the optional ones
/// included.
///
/// The payload of a reduce-scatter, an exchange and an all-reduce is the data sent; the payload of
/// an all-gather is the data received.
template <class C>
class Recording : public detail::CommunicatorDecorator<Recording<C>, C> {
    using Base = detail::CommunicatorDecorator<Recording, C>;
    friend Base;

public:
    using Queue = typename Base::Queue;

    /// @param inner the communicator that moves the data; must outlive this object
    explicit Recording(C& inner) noexcept : Base(inner) {}

    /// @brief Returns the counts since construction or `reset_recorded`.
    [[nodiscard]] TrafficCount const& recorded() const noexcept { return _recorded; }

    /// @brief Resets the counts.
    void reset_recorded() noexcept { _recorded = {}; }

private:
    template <class T, class Forward>
    void around(detail::DecoratedCall const& call, Queue /*queue*/, Forward const& forward) {
        _recorded.add(call.kind, call.count, sizeof(T));
        forward();
    }

    TrafficCount _recorded;
};

} // namespace ZERO_NAMESPACE
