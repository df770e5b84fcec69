#pragma once

#include "../../../comm/grouped_communicator.hpp"
#include "../../../core/detail/namespace.hpp"
#include "../../../core/memory_resource.hpp"
#include "../../../layout/flat_layout.hpp"
#include "../../../layout/lease_plan.hpp"
#include "../../../layout/memory_plan.hpp"
#include "../../../layout/stage_table.hpp"
#include "../../parameter.hpp"
#include "../../stage_options.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace ZERO_NAMESPACE::detail {

template <class Config, bool IsAny = Config::Offload::is_any>
class OffloadedStates;

/// @brief Names the `OffloadedStates` of an engine. Empty without `Offload`.
template <class Config, bool IsAny = Config::Offload::is_any>
struct OffloadRef {
    explicit OffloadRef(OffloadedStates<Config> const& /*states*/) noexcept {}
};

template <class Config>
struct OffloadRef<Config, true> {
    OffloadedStates<Config>* states;
    explicit OffloadRef(std::unique_ptr<OffloadedStates<Config>> const& all) noexcept
        : states(all.get()) {}
};

/// @brief Which parameters this rank counts in norms: all, unless another rank of this copy of the
/// model counts a replica.
template <class Config, bool IsCut = ModelParallelCommunicator<typename Config::Communicator>>
struct CountedParameters {
    static constexpr std::uint32_t engine = 0;
    [[nodiscard]] static constexpr bool counts(std::size_t /*parameter*/) noexcept { return true; }
};

template <class Config>
struct CountedParameters<Config, true> {
    std::vector<char> flags;  ///< by parameter
    std::uint32_t engine = 0; ///< `CollectiveTag::engine` over the ranks of this copy
    [[nodiscard]] bool counts(std::size_t parameter) const noexcept {
        return flags[parameter] != 0;
    }
};

/// @brief Where parameters are gathered: over which ranks, on which queue. Owns nothing.
template <class Config>
struct GatherRoute {
    ShardOf<typename Config::Communicator>* ranks;
    typename Config::Backend::Queue queue;
};

/// @brief The constructor argument of the members of an engine. Owns nothing. Except for
/// `parameters`, everything that it points to outlives the members.
template <class Config>
struct EngineContext {
    FlatLayout const* layout;
    typename Config::Communicator* communicator;
    typename Config::Backend::Queue queue;    ///< queue of communication and updates
    std::span<AnyParameter const> parameters; ///< valid only during construction
    StageOptions<Config> const* options;
    MemoryResource* memory;
    StageRow row;
    ReductionSchedule schedule;
    bool has_one_micro_step;    ///< a step has one micro-step
    float predivide;            ///< payloads are divided by it before they are sent
    std::size_t further_leases; ///< `leases_until_rebuild`; 0 after the rebuild
    bool counts_by_parameter;   ///< updates are counted for each parameter
    CountedParameters<Config> const* counted;
    OffloadRef<Config> offload; // not [[no_unique_address]]: nvcc 13.0 crashes on it in a base

    /// @brief This rank among all, for messages.
    [[nodiscard]] std::size_t rank() const {
        return static_cast<std::size_t>(communicator->rank());
    }

    /// @brief This rank among those over which states are cut: its extents.
    [[nodiscard]] std::size_t shard_rank() const { return shard_rank_of(*communicator); }

    /// @brief Returns where parameters are gathered if gathers have no communicator of their own.
    [[nodiscard]] GatherRoute<Config> gather_route() const noexcept {
        return {&shard_of(*communicator), queue};
    }

    /// @brief Returns the inputs of the memory formulas for one parameter type.
    /// @param communication_bytes bytes per element of its communication type
    [[nodiscard]] LayoutTotals totals(std::size_t type, std::size_t communication_bytes) const {
        return count_layout(*layout, shard_rank(), row, options->storage, options->extra_leases,
                            type, further_leases,
                            options->reduction.wire_bytes / communication_bytes, options->gather);
    }

    /// @brief Returns the places of gradient buckets in flight.
    [[nodiscard]] LeasePlan gradient_leases(std::size_t type) const {
        return plan_gradient_leases(*layout, !row.shards_parameters(),
                                    spare_places(options->extra_leases, further_leases), type);
    }

    /// @brief Returns the places of gathered and copied parameter buckets.
    [[nodiscard]] LeasePlan parameter_leases(std::size_t type) const {
        return plan_parameter_leases(*layout, row, options->storage,
                                     spare_places(options->extra_leases, further_leases), type,
                                     options->gather);
    }
};

/// @brief The same for the members that serve one parameter type.
template <class Config>
struct TypeContext : EngineContext<Config> {
    std::size_t type; ///< index of the parameter type
};

} // namespace ZERO_NAMESPACE::detail
