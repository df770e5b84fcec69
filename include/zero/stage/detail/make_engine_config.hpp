#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../policy/master_weights.hpp"
#include "../../policy/parameters.hpp"
#include "engine_config.hpp"
#include "type_set.hpp"

#include <type_traits>

namespace ZERO_NAMESPACE::detail {

/// @brief The master weights of one parameter type: the policy's, or none for floats, which are
/// their own master weights.
template <class MasterPolicy, class P>
using master_t = std::conditional_t<std::is_same_v<P, float>, NoMasterWeights, MasterPolicy>;

/// @brief The types that parameters of type P pass through.
template <class Reduction, class MasterPolicy, class P>
using type_set_t =
    TypeSet<P, typename Reduction::template GradientType<P>,
            typename Reduction::template CommunicationType<P>,
            typename Reduction::template AccumulationType<P>, master_t<MasterPolicy, P>>;

/// @brief Makes the `EngineConfig` of a stage from its policies. `StageConfig` uses it.
template <class Communicator, class LossScaler, class Optimizer, class OptimizerState,
          class BucketerOptions, class Reduction, class MasterPolicy, class Policy>
struct MakeEngineConfig;

template <class Communicator, class LossScaler, class Optimizer, class OptimizerState,
          class BucketerOptions, class Reduction, class MasterPolicy, class... P>
struct MakeEngineConfig<Communicator, LossScaler, Optimizer, OptimizerState, BucketerOptions,
                        Reduction, MasterPolicy, Parameters<P...>> {
    using type = EngineConfig<Communicator, LossScaler, Optimizer, OptimizerState, MasterPolicy,
                              BucketerOptions, type_set_t<Reduction, MasterPolicy, P>...>;
};

} // namespace ZERO_NAMESPACE::detail
