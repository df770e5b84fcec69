#pragma once

#include "../core/detail/light_std.hpp"
#include "../core/detail/namespace.hpp"
#include "../core/error.hpp"
#include "../core/hash.hpp"
#include "../core/set_by_name.hpp"
#include "communicator.hpp"
#include "detail/decorator.hpp"
#include "detail/optional_operations.hpp"
#include "detail/run_threads.hpp"
#include "grouped_communicator.hpp"
#include "sum_over_ranks.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief A role for `Groups`: states are sharded over G ranks and replicated R times (MiCS, Zhang
/// et al., 2022; "hybrid sharding" of PyTorch's FSDP). Sums are sent between replicas in the
/// communication type of the gradients.
struct Hybrid {
    static constexpr bool sends_float_between = false; ///< in the communication type
};

/// @brief The same, with sums that are sent between replicas as floats. For a communication type of
/// 16 bits.
struct HybridInFloat {
    static constexpr bool sends_float_between = true; ///< as floats
};

/// @brief The options of `Groups`. `shard` must be equal on all ranks.
struct GroupsOptions {
    [[no_unique_address]] SetByName by_name{}; ///< members are set by name only
    /// @brief G, the number of ranks over which states are sharded, for instance those of a host;
    /// it divides the number of ranks.
    std::size_t shard = 0;

    /// @brief The number of this rank's shard group, for instance of its host. All ranks give one,
    /// or no rank does: then `shard` consecutive ranks form a group.
    std::optional<std::size_t> group{};
};

} // namespace ZERO_NAMESPACE

namespace ZERO_NAMESPACE::detail {

template <class Role>
concept IsHybrid = std::same_as<Role, Hybrid> || std::same_as<Role, HybridInFloat>;

/// @brief Requires that the first word of each rank is the same. @param words of a rank
/// @param what where it is from, for the message. @throws LayoutMismatch on every rank
void require_same_number(std::span<std::uint64_t const> asked, std::size_t words, char const* what);

/// @brief The words of `GroupsOptions` that ranks exchange: `shard`, whether there is a `group`,
/// and its number.
inline constexpr std::size_t words_of_options = 3;

/// @brief Returns the replica of each rank. Replicas are numbered by their lowest rank.
/// @param asked the words of all ranks
/// @throws LayoutMismatch, InvalidArgument: on every rank
[[nodiscard]] std::vector<std::size_t> plan_groups(std::span<std::uint64_t const> asked);

/// @brief The words of given parts that ranks exchange: size and rank of each.
inline constexpr std::size_t words_of_parts = 4;

/// @brief The same for given parts. @throws InvalidArgument on every rank
[[nodiscard]] std::vector<std::size_t> check_parts(std::span<std::uint64_t const> given);

/// @brief An error that a rank may find in its parts although their sizes form a grid.
enum class PartsError : std::uint64_t { none, mixed_shard, mixed_replicas };

/// @brief Checks what all ranks found. @throws InvalidArgument on every rank
void check_found(std::span<std::uint64_t const> found);

/// @brief Returns the words of all ranks. Collective; waits.
template <class C>
[[nodiscard]] List<std::uint64_t> gather_groups(C& communicator, char const* what,
                                                std::span<std::uint64_t const> own) {
    List<std::uint64_t> all(static_cast<std::size_t>(communicator.size()) * own.size());
    for (std::size_t word = 0; word < own.size(); ++word) {
        all[static_cast<std::size_t>(communicator.rank()) * own.size() + word] = own[word];
    }
    gather_words(communicator, all, CollectiveTag{what, own.size()});
    return all;
}

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief A communicator whose parts play different roles in an engine: with `Hybrid`, states are
/// sharded over groups of G ranks, and the R = W / G groups hold replicas.
///
///     using Hosts = zero::Groups<zero::mpi::Communicator, zero::Hybrid>;
///     Hosts hosts(everyone, {.shard = 8});
///     zero::ZeroStage<3, Hosts> engine(hosts, parameters);
///
/// Gathers and reduce-scatters stay inside the groups. Between them an engine all-reduces the sums
/// of a step once, each rank those of its extents, when the step ends. A sum is formed in float in
/// rank order inside, rounded to the communication type, added over micro-steps, and then rounded
/// and summed likewise between the groups. So the bits depend on (G, R) and on nothing else; with
/// G = W they are those of the flat run.
///
/// Rank r is rank r mod G of group r / G, unless the options give the groups. As a communicator it
/// is that of all W ranks, which must outlive it. A failure of one part reaches all ranks; call
/// `run_rank(groups, body)` or an engine to report one.
///
/// It has no tree of micro-batches, and stage 0 shards nothing: both are refused. Decorators around
/// it are refused, because an engine would not see the parts; decorate these.
/// @tparam C a `SplittableCommunicator`, or one whose parts are given
/// @tparam Role `Hybrid` or `HybridInFloat`
template <class C, class Role>
class Groups : public detail::RoleDecorator<Groups<C, Role>, C, GroupedCommunicator<C>, true> {
    using Base = detail::RoleDecorator<Groups, C, GroupedCommunicator<C>, true>;
    friend Base;

    static_assert(detail::IsHybrid<Role>,
                  "zero::Groups: the role must be zero::Hybrid or zero::HybridInFloat.");

public:
    using Part = C; ///< the type of the communicator and of its parts
    using Queue = typename Base::Queue;
    using Options = GroupsOptions; ///< of a constructor
    static constexpr bool sends_float_between =
        Role::sends_float_between; ///< see `GroupedCommunicator`

    /// @brief Splits the communicator. Collective; blocks until all ranks have called.
    /// @param everyone all W ranks; must outlive this object
    /// @throws LayoutMismatch if ranks give different sizes; InvalidArgument; both on every rank
    Groups(C& everyone, GroupsOptions const& options) : Base(everyone) {
        static_assert(SplittableCommunicator<C>,
                      "zero::Groups: this communicator has no 'split'; split the one below, and "
                      "give its parts: Groups(everyone, shard, replicas).");
        if constexpr (SplittableCommunicator<C>) {
            std::uint64_t const own[detail::words_of_options] = {
                options.shard, options.group ? std::uint64_t{1} : 0, options.group.value_or(0)};
            auto const asked = detail::gather_groups(everyone, "options of zero::Groups", own);
            _replicas_of = detail::plan_groups(detail::as_span(asked));
            std::size_t const own_replica = replica_of(static_cast<std::size_t>(everyone.rank()));
            std::size_t place = 0; // in the group
            for (int rank = 0; rank < everyone.rank(); ++rank) {
                place += replica_of(static_cast<std::size_t>(rank)) == own_replica ? 1 : 0;
            }
            _split.reset(
                new Parts{everyone.split(static_cast<int>(own_replica), everyone.rank()),
                          everyone.split(static_cast<int>(place), static_cast<int>(own_replica))});
            _shard = &_split->shard;
            _replicas = &_split->replicas;
        }
    }

    /// @brief Uses parts that the caller made, for instance decorated ones. Collective; waits.
    /// @param everyone all W ranks, @param shard the ranks of this rank's group, in the same order,
    /// @param replicas the ranks with this rank's number in their group; all must outlive this
    /// object. Rank 0 is in replica 0
    /// @throws InvalidArgument on every rank if the parts do not form a grid
    Groups(C& everyone, C& shard, C& replicas)
        : Base(everyone), _shard(&shard), _replicas(&replicas) {
        std::uint64_t const own[detail::words_of_parts] = {
            static_cast<std::uint64_t>(shard.size()), static_cast<std::uint64_t>(shard.rank()),
            static_cast<std::uint64_t>(replicas.size()),
            static_cast<std::uint64_t>(replicas.rank())};
        auto const given = detail::gather_groups(everyone, "parts of zero::Groups", own);
        _replicas_of = detail::check_parts(detail::as_span(given));
        try {
            auto found = static_cast<std::uint64_t>(detail::PartsError::none);
            if (!are_equal(shard, own[3])) {
                found = static_cast<std::uint64_t>(detail::PartsError::mixed_shard);
            }
            if (!are_equal(replicas, own[1]) && found == 0) {
                found = static_cast<std::uint64_t>(detail::PartsError::mixed_replicas);
            }
            auto const of_ranks = detail::gather_groups(everyone, "checked parts of zero::Groups",
                                                        std::span(&found, 1));
            detail::check_found(detail::as_span(of_ranks));
        } catch (CommunicatorError const&) { // ranks may wait in any part
            detail::report_failure(static_cast<std::size_t>(this->rank()),
                                   [this](std::string_view cause) { this->abort(cause); });
            throw;
        }
    }

    /// @brief Returns the G ranks over which states are sharded.
    [[nodiscard]] C& shard() const noexcept { return *_shard; }

    /// @brief Returns the R ranks that own the same extents.
    [[nodiscard]] C& replicas() const noexcept { return *_replicas; }

    /// @brief Returns all W ranks.
    [[nodiscard]] C& everyone() const noexcept { return this->inner(); }

    /// @brief Returns the number of this rank's replica.
    [[nodiscard]] std::size_t replica() const noexcept {
        return static_cast<std::size_t>(_replicas->rank());
    }

    /// @brief Returns the number of the replica that holds a rank.
    [[nodiscard]] std::size_t replica_of(std::size_t rank) const noexcept {
        return _replicas_of[rank];
    }

    /// @brief See `Communicator`. Includes G, and what is sent between replicas.
    [[nodiscard]] std::uint64_t options_hash() const noexcept {
        Hash hash;
        hash.add(_shard->size()).add(sends_float_between);
        for (C const* const part : {&everyone(), _shard, _replicas}) {
            hash.add(detail::options_hash_of(*part));
        }
        return hash.value();
    }

private:
    struct Parts {
        C shard;
        C replicas;
    };

    /// Calls once for a communicator that plays several roles.
    template <class Call>
    void for_parts(Call const& call) const {
        this->for_inner_and(*_shard, call);
        if (_replicas != &everyone() && _replicas != _shard) {
            call(*_replicas);
        }
    }

    /// Returns whether all ranks of a part have the same number. Collective; waits.
    static bool are_equal(C& part, std::uint64_t own) {
        bool is_equal = true;
        for (std::uint64_t const number :
             detail::gather_groups(part, "a part of zero::Groups", std::span(&own, 1))) {
            is_equal = is_equal && number == own;
        }
        return is_equal;
    }

    std::vector<std::size_t> _replicas_of; ///< by rank
    std::unique_ptr<Parts> _split;         ///< null if the parts were given
    C* _shard = nullptr;
    C* _replicas = nullptr;
};

} // namespace ZERO_NAMESPACE

#if !defined(ZERO_COMPILED)
#include "detail/groups.ipp"
#endif
