#pragma once

#include "../../comm/communicator.hpp"
#include "../../comm/detail/wait_for_collectives.hpp"
#include "../../core/buffer.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/memory_resource.hpp"
#include "drain.hpp"
#include "replace_policy.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

/// Small values of the host that ranks have to know of one another. A communicator takes memory of
/// its backend only, so they go through a buffer of it.
namespace ZERO_NAMESPACE::detail {

/// @brief Copies `values` to the backend, `begin` elements into memory for `total`, lets
/// `exchange(own, all)` enqueue a collective on it, and copies all of it back. Waits.
template <class Communicator, class Exchange>
std::vector<std::uint64_t>
through_backend(Communicator& communicator, typename Communicator::Backend::Queue queue,
                MemoryResource& memory, std::vector<std::uint64_t> const& values, std::size_t begin,
                std::size_t total, Exchange&& exchange) {
    using Backend = typename Communicator::Backend;
    std::vector<std::uint64_t> exchanged(total);
    Buffer<std::uint64_t> all(memory, total, BufferKind::control);
    Drain<Backend> const drain(
        queue); // commands that were enqueued use both, also when the collective throws
    std::uint64_t* const own = all.data() + begin;
    Backend::copy_bytes(queue, own, values.data(), values.size() * sizeof(std::uint64_t));
    exchange(own, all.data());
    Backend::copy_bytes(queue, exchanged.data(), all.data(), all.size_bytes());
    wait_for_collectives(communicator, queue);
    return exchanged;
}

/// @brief The values of every rank, equally many, in rank order. Collective, waits.
template <class Communicator>
std::vector<std::uint64_t>
gather_on_host(Communicator& communicator, typename Communicator::Backend::Queue queue,
               MemoryResource& memory, std::vector<std::uint64_t> const& values, char const* what) {
    auto const world = static_cast<std::size_t>(communicator.size());
    std::vector<std::size_t> cuts;
    for (std::size_t peer = 0; peer <= world; ++peer) {
        cuts.push_back(peer * values.size());
    }
    std::size_t const begin = cuts[static_cast<std::size_t>(communicator.rank())];
    return through_backend(
        communicator, queue, memory, values, begin, cuts.back(),
        [&](std::uint64_t* own, std::uint64_t* all) {
            communicator.all_gather(own, all, cuts, queue, CollectiveTag{what, 0});
        });
}

/// @brief The values of rank 0, as many as every other rank gives. Collective, waits.
template <class Communicator>
std::vector<std::uint64_t>
broadcast_on_host(Communicator& communicator, typename Communicator::Backend::Queue queue,
                  MemoryResource& memory, std::vector<std::uint64_t> const& values,
                  char const* what) {
    return through_backend(
        communicator, queue, memory, values, 0, values.size(),
        [&](std::uint64_t* own, std::uint64_t*) {
            communicator.broadcast(own, values.size(), 0, queue, CollectiveTag{what, 0});
        });
}

} // namespace ZERO_NAMESPACE::detail
