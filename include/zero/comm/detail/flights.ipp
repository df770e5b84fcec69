#pragma once

#include "flight.hpp"

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE Flights::Flights(std::size_t world)
    : _flights(
        larger<std::size_t>(16, smaller<std::size_t>(512, (std::size_t{1} << 16U) / (world + 1)))) {
    for (Flight& flight : _flights) {
        flight.cuts = List<std::size_t>(world + 1);
    }
}

ZERO_INLINE Flight& Flights::next(CollectiveCall const& call, CollectiveMemory const& memory) {
    Flight& flight = _flights[_count % _flights.size()];
    flight.done.synchronise();
    flight.kind = call.kind;
    flight.element_bytes = memory.element_bytes;
    flight.count = call.count;
    flight.detail = static_cast<std::size_t>(call.detail);
    flight.send = memory.send;
    flight.receive = memory.receive;
    flight.sum = memory.sum;
    flight.signature = CallSignature::of(call);
    for (std::size_t cut = 0; cut < memory.cuts.size(); ++cut) {
        flight.cuts[cut] = memory.cuts[cut];
    }
    ++_count;
    return flight;
}

ZERO_COLD_INLINE void Flights::synchronise() const {
    for (Flight const& flight : _flights) {
        flight.done.synchronise();
    }
}

} // namespace ZERO_NAMESPACE::detail
