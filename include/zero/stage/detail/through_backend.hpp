#pragma once

#include "../../comm/detail/wait_for_collectives.hpp"
#include "../../core/buffer.hpp"
#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/memory_resource.hpp"
#include "drain.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Runs a collective on a few host values. A communicator accepts only memory of its
/// backend, so the values pass through a buffer there. Waits.
///
/// `gather_on_host` and `broadcast_on_host` use it.
/// @param begin offset of this rank's values in the buffer, @param total elements of the buffer
/// @param exchange `exchange(own, all)` enqueues the collective on the buffer
/// @return the content of the buffer after the collective
template <class Communicator>
[[gnu::cold]] std::vector<std::uint64_t>
through_backend(Communicator& communicator, typename Communicator::Backend::Queue queue,
                MemoryResource& memory, std::vector<std::uint64_t> const& values, std::size_t begin,
                std::size_t total, FunctionRef<std::uint64_t*, std::uint64_t*> exchange) {
    using Backend = typename Communicator::Backend;
    std::vector<std::uint64_t> exchanged(total);
    Buffer<std::uint64_t> all(memory, total, BufferKind::control);
    Drain<Backend> const drain(queue); // commands use both, even after the collective throws
    std::uint64_t* const own = all.data() + begin;
    Backend::copy_bytes(queue, own, values.data(), values.size() * sizeof(std::uint64_t));
    exchange(own, all.data());
    Backend::copy_bytes(queue, exchanged.data(), all.data(), all.size_bytes());
    wait_for_collectives(communicator, queue);
    return exchanged;
}

} // namespace ZERO_NAMESPACE::detail
