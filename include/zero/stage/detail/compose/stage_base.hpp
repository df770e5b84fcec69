#pragma once

#include "../../../core/detail/namespace.hpp"
#include "../../../core/detail/require_cxx20.hpp"
#include "../../../core/policy_category.hpp"
#include "../../../policy/detail/diagnose_policies.hpp"
#include "../../../policy/detail/policy_list.hpp"
#include "../../engine.hpp"
#include "../../parameter.hpp"
#include "../common/engine_config.hpp"
#include "../engine/engine_rebuild.hpp"
#include "../registration/make_stage_layout.hpp"
#include "composition_conflict.hpp"
#include "is_accepted.hpp"
#include "stage_config.hpp"

#include <span>
#include <type_traits>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief The engine of a stage whose policies fit together. It adds the constructor from
/// registered parameters, and the layout that the stage's partitioner and bucketer make.
template <class Stage>
class AcceptedStage : public Engine<typename Stage::EngineConfig> {
    using Base = Engine<typename Stage::EngineConfig>;

public:
    using typename Base::Communicator;
    using typename Base::Options;
    using typename Base::Registration;
    using Composition = Stage; ///< every policy, defaults included
    static constexpr int stage = Stage::stage;

    /// @brief Checks the arguments, makes the layout, allocates everything, and sets the initial
    /// values. Collective; waits.
    /// @throws InvalidArgument (nothing was sent), LayoutMismatch, CommunicatorError
    AcceptedStage(Communicator& communicator, Registrations<Registration> parameters,
                  Options const& options = {});

private:
    struct Registered {};

    AcceptedStage(Communicator& communicator, std::vector<AnyParameter> const& parameters,
                  Options const& options, Registered);
};

// Defined outside the class, as the members of Engine are, so that `extern template` keeps them out
// of translation units that only declare the stage.

template <class Stage>
[[gnu::cold]] AcceptedStage<Stage>::AcceptedStage(Communicator& communicator,
                                                  Registrations<Registration> parameters,
                                                  Options const& options)
    : AcceptedStage(communicator,
                    register_parameters<typename Stage::EngineConfig>(
                        std::span<Registration const>(parameters)),
                    options, Registered()) {}

template <class Stage>
[[gnu::cold]] AcceptedStage<Stage>::AcceptedStage(Communicator& communicator,
                                                  std::vector<AnyParameter> const& parameters,
                                                  Options const& options, Registered)
    : Base(stage, communicator, parameters, options,
           &make_stage_layout<typename Stage::EngineConfig, typename Stage::Partitioner,
                              typename Stage::Bucketer>) {}

/// @brief Whether the policies disagree on how numbers are stored, so that no engine can be
/// compiled with them.
template <int N, class... Policies>
consteval bool conflicts_in_storage() {
    if constexpr ((CompletePolicy<Policies> && ...) && are_distinct<Policies...>) {
        constexpr Conflict conflict = conflict_in<N, Policies...>();
        return conflict == Conflict::whole_tensor_storage || conflict == Conflict::split_of_other
               || conflict == Conflict::offload_from_device
               || conflict == Conflict::offload_of_own_master
               || conflict == Conflict::host_memory_of_host
               || conflict == Conflict::host_update_of_part
               || conflict == Conflict::host_update_without_call
               || conflict == Conflict::tree_over_communicator
               || conflict == Conflict::codes_without_backend
               || conflict == Conflict::gradient_codes_in_tree
               || conflict == Conflict::gradient_codes_without_exchange
               || conflict == Conflict::gradient_codes_without_backend;
    }
    return false;
}

/// @brief Whether a stage can be compiled with the policy. @tparam DropsStorage leave out the
/// policies that decide how numbers are stored
template <bool DropsStorage, class Policy>
inline constexpr bool is_usable = CompletePolicy<Policy> && !HasBareBackend<Policy>
                                  && !(DropsStorage
                                       && (NamesCategory<Policy, MasterWeightsCategory>
                                           || NamesCategory<Policy, OptimizerStateCategory>
                                           || NamesCategory<Policy, OffloadCategory>
                                           || NamesCategory<Policy, GradientReductionCategory>
                                           || NamesCategory<Policy, WireCategory>));

/// @brief The stage that remains without the policies that cannot be compiled.
template <int N, bool DropsStorage, class Usable, class... Rest>
struct UsableStage;

template <int N, bool DropsStorage, class... Usable>
struct UsableStage<N, DropsStorage, PolicyPack<Usable...>> {
    using type = AcceptedStage<StageConfig<(N >= 0 && N <= 3) ? N : 2, Usable...>>;
};

template <int N, bool DropsStorage, class... Usable, class First, class... Rest>
struct UsableStage<N, DropsStorage, PolicyPack<Usable...>, First, Rest...>
    : UsableStage<N, DropsStorage,
                  std::conditional_t<is_usable<DropsStorage, First>, PolicyPack<Usable..., First>,
                                     PolicyPack<Usable...>>,
                  Rest...> {};

/// @brief The base of a stage that is rejected. It can be used like an accepted one, so the only
/// error is the one that names the cause.
template <int N, class... Policies>
class RejectedStage : public UsableStage<N, conflicts_in_storage<N, Policies...>(), PolicyPack<>,
                                         Policies...>::type {
    using Base = typename UsableStage<N, conflicts_in_storage<N, Policies...>(), PolicyPack<>,
                                      Policies...>::type;

public:
    using Base::Base;

    /// Accepts a communicator that was rejected.
    template <class Communicator, class Parameters>
    RejectedStage(Communicator&, Parameters const&, typename Base::Options const& = {});
};

/// @brief The base of `ZeroStage`: the engine of an accepted stage, or its replacement in a
/// rejected one.
template <bool IsAccepted, int N, class... Policies>
struct StageBase {
    using type = RejectedStage<N, Policies...>;
};

template <int N, class... Policies>
struct StageBase<true, N, Policies...> {
    using type = AcceptedStage<StageConfig<N, Policies...>>;
};

template <int N, class... Policies>
using stage_base_t = typename StageBase<is_accepted<N, Policies...>(), N, Policies...>::type;

} // namespace ZERO_NAMESPACE::detail
