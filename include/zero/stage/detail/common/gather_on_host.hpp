#pragma once

#include "../../../comm/communicator.hpp"
#include "../../../comm/detail/collective_call.hpp"
#include "../../../comm/detail/optional_operations.hpp"
#include "../../../core/buffer.hpp"
#include "../../../core/detail/light_std.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/dtype.hpp"
#include "../../../core/memory_resource.hpp"
#include "bucket_scope.hpp"
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
    // CUDA makes the caller of a copy to pageable memory wait, holding a lock that another rank of
    // this process may need to take part in the collective.
    wait_for_collectives(communicator, queue);
    Backend::copy_bytes(queue, exchanged.data(), all.data(), all.size_bytes());
    wait_for_collectives(communicator, queue);
    return exchanged;
}

/// @brief `gather_on_host` without a comparison.
template <class Communicator>
[[gnu::cold]] std::vector<std::uint64_t>
gather_uncompared(Communicator& communicator, typename Communicator::Backend::Queue queue,
                  MemoryResource& memory, std::vector<std::uint64_t> const& values,
                  CollectiveTag const& tag) {
    std::vector<std::size_t> const cuts =
        uniform_cuts(static_cast<std::size_t>(communicator.size()), values.size());
    std::size_t const begin = cuts[static_cast<std::size_t>(communicator.rank())];
    return through_backend(communicator, queue, memory, values, begin, cuts.back(),
                           [&](std::uint64_t* own, std::uint64_t* all) {
                               communicator.all_gather(own, all, cuts, queue, tag);
                           });
}

/// @brief Compares a call that ranks make between steps, where a wait costs little, before it
/// changes anything. Collective; waits.
///
/// A call that always sends needs it only where the transport compares no tags. One that sends
/// nothing in some stage needs it everywhere, since a rank could make it alone.
/// @throws CollectiveMismatch on every rank, naming both calls
template <class Communicator>
[[gnu::cold]] void compare_call(Communicator& communicator,
                                typename Communicator::Backend::Queue queue, MemoryResource& memory,
                                CollectiveTag const& tag) {
    if (communicator.size() == 1) {
        return;
    }
    auto const own = CallSignature::of_compared(tag);
    auto const gather = [&] {
        return gather_uncompared(communicator, queue, memory,
                                 std::vector<std::uint64_t>(own.begin(), own.end()), tag);
    };
    auto const all = gather();
    auto const gather_again = [&] { (void)gather(); };
    CallSignature::require_equal(as_span(all), gather_again);
}

/// @brief `compare_call` where the transport compares no tags; elsewhere a no-op.
template <class Communicator>
void compare_untagged(Communicator& communicator, typename Communicator::Backend::Queue queue,
                      MemoryResource& memory, CollectiveTag const& tag) {
    if constexpr (!compares_calls<Communicator>) {
        compare_call(communicator, queue, memory, tag);
    }
}

/// @brief Returns the values of every rank in rank order. Collective; waits.
/// @param values the same number on every rank
/// @param tag of the collective, which is compared between ranks
template <class Communicator>
[[gnu::cold]] std::vector<std::uint64_t>
gather_on_host(Communicator& communicator, typename Communicator::Backend::Queue queue,
               MemoryResource& memory, std::vector<std::uint64_t> const& values,
               CollectiveTag const& tag) {
    compare_untagged(communicator, queue, memory, tag);
    return gather_uncompared(communicator, queue, memory, values, tag);
}

/// @brief `gather_on_host` over the ranks of an engine, in a call that the tag names.
/// @param access a `StateAccess`
template <class Access>
[[gnu::cold]] std::vector<std::uint64_t>
gather_on_host(Access const& access, std::vector<std::uint64_t> const& values, char const* what) {
    return gather_on_host(access.communicator(), access.queue(), access.memory(), values,
                          engine_tag(access.layout(), what));
}

/// @brief Returns `gather(own, what, all)`, which sets `all` to the values of every rank. Its
/// arguments must outlive it. @param engine, context of the `CollectiveTag`
template <class Communicator>
[[nodiscard]] auto gather_over(Communicator& communicator,
                               typename Communicator::Backend::Queue queue, MemoryResource& memory,
                               std::uint32_t engine = 0, char const* context = "") {
    return [&communicator, queue, &memory, engine, context](std::vector<std::uint64_t> const& own,
                                                            char const* what,
                                                            std::vector<std::uint64_t>& all) {
        CollectiveTag const tag{what, 0, "", context, CollectivePurpose::other, engine};
        all = gather_on_host(communicator, queue, memory, own, tag);
    };
}

/// @brief Returns the values of rank 0. Collective; waits.
/// @param values the same number on every rank
/// @param tag of the collective, which is compared between ranks
template <class Communicator>
[[gnu::cold]] std::vector<std::uint64_t>
broadcast_on_host(Communicator& communicator, typename Communicator::Backend::Queue queue,
                  MemoryResource& memory, std::vector<std::uint64_t> const& values,
                  CollectiveTag const& tag) {
    compare_untagged(communicator, queue, memory, tag);
    return through_backend(communicator, queue, memory, values, 0, values.size(),
                           [&](std::uint64_t* own, std::uint64_t*) {
                               communicator.broadcast(own, values.size(), 0, queue, tag);
                           });
}

} // namespace ZERO_NAMESPACE::detail
