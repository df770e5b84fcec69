#pragma once

#include "../../comm/communicator.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/memory_resource.hpp"
#include "gather_on_host.hpp"
#include "through_backend.hpp"

#include <cstdint>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns the values of rank 0. Collective; waits.
/// @param values the same number on every rank
/// @param what tag of the collective, which is compared between ranks
template <class Communicator>
[[gnu::cold]] std::vector<std::uint64_t>
broadcast_on_host(Communicator& communicator, typename Communicator::Backend::Queue queue,
                  MemoryResource& memory, std::vector<std::uint64_t> const& values,
                  char const* what) {
    compare_untagged(communicator, queue, memory, CollectiveTag{what, 0});
    return through_backend(
        communicator, queue, memory, values, 0, values.size(),
        [&](std::uint64_t* own, std::uint64_t*) {
            communicator.broadcast(own, values.size(), 0, queue, CollectiveTag{what, 0});
        });
}

} // namespace ZERO_NAMESPACE::detail
