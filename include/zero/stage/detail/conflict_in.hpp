#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../policy/master_weights_policy.hpp"
#include "accepts_bucketer.hpp"
#include "composition_conflict.hpp"
#include "conflict.hpp"
#include "stage_config.hpp"

namespace ZERO_NAMESPACE::detail {

/// @brief Returns the conflict between policies that are each valid on their own.
template <int N, class... Policies>
consteval Conflict conflict_in() {
    constexpr bool is_stage = N >= 0 && N <= 3;
    // NOLINTNEXTLINE(bugprone-branch-clone): the branches are the same for N = 0 only
    using Config = StageConfig<is_stage ? N : 0, Policies...>;
    // named differently from the concepts, because -Wshadow would warn
    using Cutter = typename Config::Partitioner;
    using Grouper = typename Config::Bucketer;
    using Device = typename Config::EngineConfig::Backend;
    constexpr bool is_on_device = requires { requires Device::is_device; };
    constexpr bool rounds = Config::MasterPolicy::form == MasterForm::stochastic;
    return conflict_of({
        .stage = N,
        .partitioner_cuts_parameters = Cutter::cuts_parameters,
        .partitioner_cuts_group = Cutter::cuts_group,
        .partitioner_brings_other_bucketer = !accepts_bucketer<Cutter, Grouper>,
        .bucketer_may_span_units = Grouper::may_span_units,
        .optimizer_is_whole_tensor = Config::Optimizer::whole_tensor,
        .is_on_device = is_on_device,
        .is_stored_by_block = Config::OptimizerStates::is_block_scaled || rounds,
        .master = Config::master_conflict,
    });
}

} // namespace ZERO_NAMESPACE::detail
