#pragma once

#include "../../comm/communicator.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/memory_resource.hpp"
#include "through_backend.hpp"
#include "uniform_cuts.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns the values of every rank in rank order. Collective; waits.
/// @param values the same number on every rank
/// @param what tag of the collective, which transports compare between ranks
template <class Communicator>
[[gnu::cold]] std::vector<std::uint64_t>
gather_on_host(Communicator& communicator, typename Communicator::Backend::Queue queue,
               MemoryResource& memory, std::vector<std::uint64_t> const& values, char const* what) {
    std::vector<std::size_t> const cuts =
        uniform_cuts(static_cast<std::size_t>(communicator.size()), values.size());
    std::size_t const begin = cuts[static_cast<std::size_t>(communicator.rank())];
    return through_backend(
        communicator, queue, memory, values, begin, cuts.back(),
        [&](std::uint64_t* own, std::uint64_t* all) {
            communicator.all_gather(own, all, cuts, queue, CollectiveTag{what, 0});
        });
}

} // namespace ZERO_NAMESPACE::detail
