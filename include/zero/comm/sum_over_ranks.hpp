#pragma once

#include "../core/buffer.hpp"
#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "collective_tag.hpp"
#include "communicator.hpp"
#include "detail/collective_call.hpp"
#include "detail/optional_operations.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Gathers words of every rank on the host, between any two calls of an engine. Collective;
/// waits. @param all in rank order, of each rank as many; the own ones are set
template <class C>
[[gnu::cold]] void gather_words(C& communicator, List<std::uint64_t>& all,
                                CollectiveTag const& tag) {
    using Backend = typename C::Backend;
    auto const world = static_cast<std::size_t>(communicator.size());
    std::vector<std::size_t> const cuts = uniform_cuts(world, all.size() / world);
    std::size_t const begin = cuts[static_cast<std::size_t>(communicator.rank())];
    synchronise_collectives(communicator); // engines enqueue theirs on other queues
    auto const gather = [&](typename Backend::Queue queue) {
        Buffer<std::uint64_t> shared(Backend::default_memory(), all.size(),
                                     BufferKind::communicator);
        std::uint64_t* const own = shared.data() + begin;
        Backend::copy_bytes(queue, own, &all[begin], cuts[1] * sizeof(std::uint64_t));
        communicator.all_gather(static_cast<std::uint64_t const*>(own), shared.data(), cuts, queue,
                                tag);
        Backend::synchronise(Backend::record(queue)); // as in `through_backend`
        Backend::copy_bytes(queue, &all[0], shared.data(), shared.size_bytes());
        Backend::synchronise(Backend::record(queue));
        Backend::rethrow_failure(queue);
        synchronise_collectives(communicator); // an abort would also have ended the wait
    };
    if constexpr (requires { requires Backend::is_device; }) {
        typename Backend::OwnedQueue queue;
        gather(Backend::handle(queue));
    } else {
        gather(Backend::default_compute_queue());
    }
}

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief Returns the sum of a number over all ranks, on every rank, for instance of a loss or a
/// count. Collective; waits. It works over every transport, and between any two calls of an engine
/// if all ranks make it at the same place.
///
///     double const loss = zero::sum_over_ranks(communicator, loss_of_this_rank) / world;
///
/// Floating-point numbers are added in double, in the order of ranks, so that all ranks get the
/// same bits. Integers are added as 64-bit integers.
/// @param value a number of any arithmetic type; a bool counts as 0 or 1. All ranks pass the same
/// type
/// @return a `double` or `float`, as the value is, or a 64-bit integer
/// @throws CommunicatorError if a rank fails or calls something else
template <Communicator C, class T>
[[nodiscard]] auto sum_over_ranks(C& communicator, T value) {
    static_assert(
        std::is_arithmetic_v<T>,
        "zero::sum_over_ranks: the value must be a float, a double or an integer; convert "
        "a 16-bit number, or take the item of a tensor, loss.item<double>().");
    using Sum =
        std::conditional_t<std::is_floating_point_v<T>, double,
                           std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>;
    using Result = std::conditional_t<std::is_same_v<T, float>, float, Sum>;

    CollectiveTag const tag{"sum_over_ranks(), sum", 0, "", "a call that every rank must make"};
    // The number travels as the last word of a signature, so a rank that makes a call of an engine
    // instead finds the difference.
    constexpr std::size_t words = detail::compares_calls<C> ? 1 : detail::CallSignature::words;
    auto const world = static_cast<std::size_t>(communicator.size());
    auto const rank = static_cast<std::size_t>(communicator.rank());
    detail::List<std::uint64_t> sent(world
                                     * words); // as bits, because transports do not gather doubles
    std::uint64_t* const own = &sent[rank * words];
    if constexpr (words != 1) {
        auto const signature = detail::CallSignature::of_compared(tag);
        for (std::size_t word = 0; word < words; ++word) {
            own[word] = signature[word];
        }
    }
    own[words - 1] = std::bit_cast<std::uint64_t>(static_cast<Sum>(value));
    auto const gather_all = [&] { detail::gather_words(communicator, sent, tag); };
    gather_all();
    if constexpr (words != 1) {
        detail::CallSignature::require_equal(detail::as_span(sent), gather_all);
    }
    Sum sum = 0;
    for (std::size_t of = 0; of < world; ++of) {
        sum += std::bit_cast<Sum>(sent[(of + 1) * words - 1]);
    }
    return static_cast<Result>(sum);
}

} // namespace ZERO_NAMESPACE
