#pragma once

#include "../../core/detail/require_cxx20.hpp"

#include "../../core/detail/namespace.hpp"
#include "accepted_stage.hpp"
#include "is_accepted.hpp"
#include "rejected_stage.hpp"
#include "stage_config.hpp"

namespace ZERO_NAMESPACE::detail {

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
