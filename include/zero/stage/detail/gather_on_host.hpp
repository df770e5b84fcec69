#pragma once

#include "../../comm/communicator.hpp"
#include "../../comm/detail/call_signature.hpp"
#include "../../comm/detail/collective_call.hpp"
#include "../../core/detail/light_std.hpp"
#include "../../core/detail/namespace.hpp"
#include "../../core/dtype.hpp"
#include "../../core/memory_resource.hpp"
#include "through_backend.hpp"
#include "uniform_cuts.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Whether ranks whose calls differ learn it from the transport; see `Communicator`.
template <class Communicator>
inline constexpr bool compares_calls = requires { requires Communicator::compares_calls; };

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
    auto const own =
        CallSignature::of({CollectiveKind::all_gather, DType::int64, CallSignature::words, 0, tag});
    auto const all = gather_uncompared(communicator, queue, memory,
                                       std::vector<std::uint64_t>(own.begin(), own.end()), tag);
    std::string const difference = CallSignature::first_difference(as_span(all));
    if (!difference.empty()) {
        throw_mismatch(difference);
    }
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

/// @copydoc gather_on_host
template <class Communicator>
[[gnu::cold]] std::vector<std::uint64_t>
gather_on_host(Communicator& communicator, typename Communicator::Backend::Queue queue,
               MemoryResource& memory, std::vector<std::uint64_t> const& values, char const* what) {
    return gather_on_host(communicator, queue, memory, values, CollectiveTag{what, 0});
}

} // namespace ZERO_NAMESPACE::detail
