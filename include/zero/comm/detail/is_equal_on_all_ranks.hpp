#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/dtype.hpp"
#include "../../host/inline_queue.hpp"
#include "../collective_tag.hpp"
#include "../traffic_count.hpp"
#include "collective_call.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns whether a hash is equal on all ranks of a group. Collective; waits. See
/// `HostCommunicator` for the type. @throws CommunicatorError
template <class Collectives>
bool is_equal_on_all_ranks(Collectives& collectives, std::uint64_t hash) {
    auto const own = static_cast<std::int64_t>(hash >> 2U);
    std::int64_t least[2] = {own, -own}; // becomes the minimum, and the maximum negated
    host::InlineQueue queue;
    CollectiveCall const call{CollectiveKind::integers, DType::int64, 2,
                              static_cast<std::uint64_t>(IntegerReduction::min),
                              CollectiveTag{"options of the communicator", 0}};
    collectives.enqueue(call, {least, least, sizeof(std::int64_t), {}, {}}, &queue);
    return least[0] == -least[1];
}

} // namespace ZERO_NAMESPACE::detail
