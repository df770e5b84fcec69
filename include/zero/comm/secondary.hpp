#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/detail/throw_error.hpp"
#include "../core/error.hpp"
#include "../core/hash.hpp"
#include "../core/set_by_name.hpp"
#include "communicator.hpp"
#include "detail/decorator.hpp"
#include "detail/optional_operations.hpp"
#include "detail/run_threads.hpp"
#include "grouped_communicator.hpp"
#include "groups.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace ZERO_NAMESPACE::detail {

/// @brief Requires a k of which each of `shard` ranks can have one copy. @param asked k of all
/// ranks, @param what where it is from, for the message
/// @throws LayoutMismatch, InvalidArgument: on every rank
[[gnu::cold]] inline void require_secondary_ranks(std::span<std::uint64_t const> asked,
                                                  std::size_t shard, char const* what) {
    require_same_number(asked, 1, what);
    std::uint64_t const ranks = asked[0];
    if (ranks <= 1 || ranks == shard || shard % ranks != 0) {
        throw_error<InvalidArgument>(
            {"zero: Groups: ", what, " is ", ranks, ", and states are cut over ", shard,
             " ranks; give the number of ranks that share a copy, a divisor of ", shard,
             " that is neither 1 nor ", shard, ", or leave zero::Secondary out."});
    }
}

/// @brief Requires that no part holds ranks of two replicas. @param found whether the part of each
/// rank does. @throws InvalidArgument on every rank
[[gnu::cold]] inline void check_secondary_parts(std::span<std::uint64_t const> found) {
    for (std::size_t rank = 0; rank < found.size(); ++rank) {
        if (found[rank] != 0) {
            throw_error<InvalidArgument>(
                {"zero: Groups: on rank ", rank,
                 " the secondary part holds ranks of two replicas; split the shard group."});
        }
    }
}

} // namespace ZERO_NAMESPACE::detail

namespace ZERO_NAMESPACE {

/// @brief A role for `Groups`: what stage 3 gathers from all ranks leaves 1/k on each of k ranks,
/// and is gathered from these until parameters change (hpZ of ZeRO++, Wang et al., 2023; "reshard
/// after forward to k ranks" of PyTorch's FSDP).
struct Secondary {};

/// @brief The options of `Groups<C, Secondary>`, equal on all ranks.
struct SecondaryOptions {
    [[no_unique_address]] SetByName by_name{}; ///< members are set by name only
    /// @brief k, the number of consecutive ranks that share a copy, for instance those of a host. A
    /// divisor of the number of ranks over which states are cut, and neither 1 nor all of them.
    std::size_t secondary = 0;
};

/// @brief A communicator whose ranks keep copies of gathered parameters in parts of k ranks.
///
///     using Hosts = zero::Groups<zero::mpi::Communicator, zero::Secondary>;
///     Hosts hosts(everyone, {.secondary = 8});
///     zero::ZeroStage<3, Hosts> engine(hosts, parameters);
///
/// As a communicator it is that of all ranks, and states are cut over all of them. The first gather
/// of a bucket after a change of parameters goes over all ranks, and each rank keeps 1/k of the
/// result. Later gathers, those of the backward pass first of all, go over `secondary()`, and so do
/// all further micro-steps of a step. Copies are never rounded, so no bit depends on k.
///
/// A failure reaches the ranks of all parts; call `run_rank(groups, body)` or an engine to report
/// one. Below stage 3 nothing is gathered: refused.
/// @tparam C a `SplittableCommunicator`, or one whose part is given; or `Groups<C, Hybrid>`, whose
/// shard groups are divided
template <class C>
class Groups<C, Secondary>
    : public detail::RoleDecorator<Groups<C, Secondary>, C, SecondaryCommunicator<C>> {
    using Base = detail::RoleDecorator<Groups, C, SecondaryCommunicator<C>>;
    friend Base;

    static_assert(!ModelParallelCommunicator<C>,
                  "zero::Groups: zero::Secondary concerns the data ranks of a part; write "
                  "zero::Groups<zero::Groups<C, zero::Secondary>, zero::ModelParallel>.");

public:
    using Part = typename Base::Part; ///< the type of the ranks that share a copy
    using Options = SecondaryOptions; ///< of a constructor

    /// @brief Splits the ranks over which states are cut. Collective; blocks until all ranks have
    /// called.
    /// @param everyone all ranks; must outlive this object
    /// @throws LayoutMismatch if ranks give different sizes; InvalidArgument; both on every rank
    Groups(C& everyone, SecondaryOptions const& options) : Base(everyone) {
        static_assert(SplittableCommunicator<Part>,
                      "zero::Groups: this communicator has no 'split'; split the one below, and "
                      "give its part: Groups(everyone, secondary).");
        if constexpr (SplittableCommunicator<Part>) {
            require_ranks(options.secondary, ".secondary");
            auto& shard = detail::shard_of(everyone);
            int const ranks = static_cast<int>(options.secondary);
            _split.reset(new Part{shard.split(shard.rank() / ranks, shard.rank())});
            _secondary = _split.get();
        }
    }

    /// @brief Uses a part that the caller made, for instance a decorated one. Collective; waits.
    /// @param everyone all ranks, @param secondary the ranks that share a copy with this one, in
    /// any order; both must outlive this object
    /// @throws LayoutMismatch, InvalidArgument: on every rank
    Groups(C& everyone, Part& secondary) : Base(everyone), _secondary(&secondary) {
        require_ranks(static_cast<std::uint64_t>(secondary.size()),
                      "the size of the secondary part");
        if constexpr (GroupedCommunicator<C>) {
            try {
                auto const own = static_cast<std::uint64_t>(everyone.replica());
                std::uint64_t is_mixed = 0;
                for (std::uint64_t const replica : detail::gather_groups(
                         secondary, "a part of zero::Groups", std::span(&own, 1))) {
                    is_mixed = replica == own ? is_mixed : 1;
                }
                auto const found = detail::gather_groups(everyone, "checked parts of zero::Groups",
                                                         std::span(&is_mixed, 1));
                detail::check_secondary_parts(detail::as_span(found));
            } catch (CommunicatorError const&) { // ranks may wait in any part
                detail::report_failure(static_cast<std::size_t>(this->rank()),
                                       [this](std::string_view cause) { this->abort(cause); });
                throw;
            }
        }
    }

    /// @brief Returns all ranks, as they were given.
    [[nodiscard]] C& everyone() const noexcept { return this->inner(); }

    /// @brief Returns the k ranks that share a copy.
    [[nodiscard]] Part& secondary() const noexcept { return *_secondary; }

    /// @brief See `Communicator`. Includes k.
    [[nodiscard]] std::uint64_t options_hash() const noexcept {
        return Hash()
            .add(_secondary->size())
            .add(detail::options_hash_of(this->inner()))
            .add(detail::options_hash_of(*_secondary))
            .value();
    }

private:
    void require_ranks(std::uint64_t ranks, char const* what) {
        auto const asked = detail::gather_groups(this->inner(), "options of zero::Groups",
                                                 std::span(&ranks, std::size_t{1}));
        detail::require_secondary_ranks(detail::as_span(asked),
                                        detail::shard_size_of(this->inner()), what);
    }

    template <class Call>
    void for_parts(Call const& call) const {
        this->for_inner_and(*_secondary, call);
    }

    std::unique_ptr<Part> _split; ///< null if the part was given
    Part* _secondary = nullptr;
};

} // namespace ZERO_NAMESPACE
