#pragma once

#include "../traffic_count.hpp"

namespace ZERO_NAMESPACE {

ZERO_INLINE void TrafficCount::add(CollectiveKind kind, std::size_t elements,
                                   std::size_t element_bytes) noexcept {
    CollectiveCount& count = kinds[static_cast<std::size_t>(kind)];
    ++count.calls;
    count.elements += elements;
    count.bytes += elements * element_bytes;
}

} // namespace ZERO_NAMESPACE
