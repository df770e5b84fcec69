#pragma once

#include "../../core/detail/require_cxx20.hpp"

#include "../../core/detail/namespace.hpp"
#include "../../core/policy_category.hpp"
#include "../../policy/detail/diagnose_policies.hpp"
#include "../../policy/detail/policy_list.hpp"
#include "accepted_stage.hpp"
#include "conflict.hpp"
#include "conflict_in.hpp"
#include "has_bare_backend.hpp"
#include "policy_pack.hpp"
#include "stage_config.hpp"

#include <type_traits>

namespace ZERO_NAMESPACE::detail {

/// @brief Whether the policies disagree on how numbers are stored, so that no engine can be
/// compiled with them.
template <int N, class... Policies>
consteval bool conflicts_in_storage() {
    if constexpr ((is_valid_policy<Policies>() && ...) && are_distinct<Policies...>) {
        constexpr Conflict conflict = conflict_in<N, Policies...>();
        return conflict == Conflict::whole_tensor_storage || conflict == Conflict::split_of_other;
    }
    return false;
}

/// @brief Whether a stage can be compiled with the policy. @tparam DropsStorage leave out the
/// policies that decide how numbers are stored
template <bool DropsStorage, class Policy>
inline constexpr bool is_usable =
    is_valid_policy<Policy>() && !has_bare_backend<Policy>()
    && !(DropsStorage
         && (is_in<MasterWeightsCategory, Policy>() || is_in<OptimizerStateCategory, Policy>()));

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

} // namespace ZERO_NAMESPACE::detail
