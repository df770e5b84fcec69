#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/detail/text.hpp"
#include "../core/type_name.hpp"
#include "../layout/placement.hpp"
#include "detail/describe_types.hpp"

#include <cstddef>
#include <string>
#include <utility>

namespace ZERO_NAMESPACE {

/// @brief Returns a composition in one line for logs, defaults included: "ZeroStage<2>: bfloat16
/// parameters (...), ContiguousPartitioner, ..., reduced by every_micro_step".
///
/// The reduction schedule is an option whose default differs between stages 1 and 2, so the same
/// program rounds elsewhere there. Pass the engine to read the schedule that it uses.
template <class Stage>
[[nodiscard]] std::string describe(ReductionSchedule schedule = default_schedule(Stage::stage)) {
    using Chosen = typename Stage::Composition; // not named Composition: -Wshadow warns if the
                                                // header of zero::Composition is included first
    using Engine = typename Chosen::EngineConfig;
    std::string text = detail::text({"ZeroStage<", Stage::stage, ">: "});
    [&]<std::size_t... Type>(std::index_sequence<Type...>) {
        ((text +=
          detail::text({detail::describe_types<typename Engine::template TypesAt<Type>>(), ", "})),
         ...);
    }(std::make_index_sequence<Engine::types>());
    return detail::text(
        {text, type_name<typename Chosen::Partitioner>(), ", ",
         type_name<typename Chosen::Bucketer>(), ", ", type_name<typename Chosen::Communicator>(),
         ", ", type_name<typename Chosen::LossScaler>(), ", ",
         type_name<typename Chosen::Optimizer>(), " with ",
         type_name<typename Chosen::OptimizerStates>(), ", reduced by ", name_of(schedule),
         (schedule == default_schedule(Stage::stage) ? " (the stage's default)" : "")});
}

/// @brief Returns the composition of an engine, with the reduction schedule that it uses.
template <class Stage>
    requires requires(Stage const& stage) { stage.schedule(); }
[[nodiscard]] std::string describe(Stage const& stage) {
    return describe<Stage>(stage.schedule());
}

} // namespace ZERO_NAMESPACE
