#pragma once

#include "../core/detail/namespace.hpp"
#include "communicator.hpp"

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

namespace ZERO_NAMESPACE::detail {

template <class C>
concept HasPart = requires {
    typename C::Part;
    requires Communicator<typename C::Part>;
    requires std::same_as<typename C::Part::Backend, typename C::Backend>;
};

template <class C>
concept HasRoles = requires(C& communicator, C const& fixed) {
    { communicator.shard() } -> std::same_as<typename C::Part&>;
    { communicator.replicas() } -> std::same_as<typename C::Part&>;
    { fixed.replica() } -> std::same_as<std::size_t>;
    { fixed.replica_of(std::size_t{}) } -> std::same_as<std::size_t>;
};

template <class C>
concept SaysWhatItSendsBetween =
    requires { requires std::same_as<bool const, decltype(C::sends_float_between)>; };

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief A communicator of all W ranks whose parts play different roles in an engine.
///
/// The W ranks form R replicas of the model states, of G = W / R ranks each. As a `Communicator` it
/// is *everyone*: what ranks compare and decide together, initial values, failures, and the data:
/// a mean divides by W, and the weights of a step are added over W. Besides:
///
/// - `shard()`: the G ranks of this replica, over which states are cut, gathered and reduced. It is
/// ordered like the W ranks.
/// - `replicas()`: the R ranks that own the same extents, by replica.
/// - `replica()`: the number of this replica, as `replicas().rank()`. Replica 0 holds rank 0. It
/// alone adds to the norm and writes checkpoints.
/// - `replica_of(rank)`: the number of the replica of any of the W ranks.
/// - `Part`: the type of both parts. Its backend is that of the communicator.
/// - `static constexpr bool sends_float_between`: whether sums are sent between replicas as floats,
/// otherwise in the communication type.
///
/// An engine on any other communicator lets it play every role. `abort` reaches the ranks that wait
/// in any part. `Groups` models this concept.
template <class C>
concept GroupedCommunicator = Communicator<C> && detail::HasPart<C> && detail::HasRoles<C>
                              && detail::SaysWhatItSendsBetween<C>;

/// @brief A communicator of the data ranks of one part of a model. `model()` are the ranks that
/// hold the parts of one copy, with the same backend.
///
/// An engine adds norms and decides on steps over both. `abort` reaches the ranks that wait in
/// either. `Groups<C, ModelParallel>` models this concept.
template <class C>
concept ModelParallelCommunicator = Communicator<C> && requires(C const& communicator) {
    requires Communicator<std::remove_cvref_t<decltype(communicator.model())>>;
    requires std::same_as<typename std::remove_cvref_t<decltype(communicator.model())>::Backend,
                          typename C::Backend>;
};

/// @brief A `ModelParallelCommunicator` whose model ranks hold other experts and have data of their
/// own: a mean divides by the ranks of both, and the weights of a step are added over both.
/// `ranks_of_expert()` consecutive model ranks hold parts of the same experts and share their data,
/// so they count once. `Groups<C, Experts>` models this concept.
template <class C>
concept ExpertCommunicator = ModelParallelCommunicator<C> && requires(C const& communicator) {
    requires C::has_experts;
    { communicator.ranks_of_expert() } -> std::same_as<std::size_t>;
};

/// @brief A communicator whose ranks keep copies of gathered parameters in parts. `secondary()` are
/// the k ranks of this rank's part, with the same backend.
///
/// An engine of stage 3 gathers a bucket over `secondary()` while its copy there is valid. `abort`
/// reaches the ranks that wait in it. `Groups<C, Secondary>` models this concept.
template <class C>
concept SecondaryCommunicator = Communicator<C> && requires(C const& communicator) {
    requires Communicator<std::remove_cvref_t<decltype(communicator.secondary())>>;
    requires std::same_as<typename std::remove_cvref_t<decltype(communicator.secondary())>::Backend,
                          typename C::Backend>;
};

} // namespace ZERO_NAMESPACE

/// The roles of a communicator in an engine. A plain one plays them all, at no cost.
namespace ZERO_NAMESPACE::detail {

/// @brief A communicator with parts for roles, which one around it hides unless it passes them on.
template <class C>
concept HasGroups =
    GroupedCommunicator<C> || ModelParallelCommunicator<C> || SecondaryCommunicator<C>;

/// @brief Returns the ranks over which states are cut, gathered and reduced.
template <class C>
[[nodiscard]] constexpr auto& shard_of(C& communicator) noexcept {
    if constexpr (GroupedCommunicator<C>) {
        return communicator.shard();
    } else if constexpr (requires { communicator.without_role(); }) {
        return shard_of(communicator.without_role());
    } else {
        return communicator;
    }
}

/// @brief The type of `shard_of`.
template <class C>
using ShardOf = std::remove_reference_t<decltype(shard_of(std::declval<C&>()))>;

/// @brief Returns this rank's number among those over which states are cut.
template <class C>
[[nodiscard]] std::size_t shard_rank_of(C& communicator) noexcept {
    return static_cast<std::size_t>(shard_of(communicator).rank());
}

/// @brief Returns the number of ranks over which states are cut.
template <class C>
[[nodiscard]] std::size_t shard_size_of(C& communicator) noexcept {
    return static_cast<std::size_t>(shard_of(communicator).size());
}

/// @brief Returns the number of ranks with data of their own: a mean divides by it.
template <class C>
[[nodiscard]] std::size_t data_size_of(C const& communicator) noexcept {
    auto const size = static_cast<std::size_t>(communicator.size());
    if constexpr (ExpertCommunicator<C>) {
        return size * static_cast<std::size_t>(communicator.model().size())
               / communicator.ranks_of_expert();
    } else {
        return size;
    }
}

/// @brief Returns whether the weight of this rank's data counts: of the ranks that share data, that
/// of one does.
template <class C>
[[nodiscard]] bool counts_weight([[maybe_unused]] C const& communicator) noexcept {
    if constexpr (ExpertCommunicator<C>) {
        return static_cast<std::size_t>(communicator.model().rank())
                   % communicator.ranks_of_expert()
               == 0;
    } else {
        return true;
    }
}

/// @brief Returns whether the gradients and states of this rank count: in a norm, which covers each
/// element once, and in a checkpoint. Other replicas hold the same bits.
template <class C>
[[nodiscard]] constexpr bool counts_once(C const& communicator) noexcept {
    if constexpr (GroupedCommunicator<C>) {
        return communicator.replica() == 0;
    } else {
        return true;
    }
}

/// @brief The same for another rank.
template <class C>
[[nodiscard]] constexpr bool counts_once(C const& communicator,
                                         [[maybe_unused]] std::size_t rank) noexcept {
    if constexpr (GroupedCommunicator<C>) {
        return communicator.replica_of(rank) == 0;
    } else {
        return true;
    }
}

} // namespace ZERO_NAMESPACE::detail
