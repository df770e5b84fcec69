#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/detail/text.hpp"
#include "../core/type_name.hpp"
#include "../layout/placement.hpp"
#include "detail/config_of.hpp"
#include "detail/describe_engine.hpp"

#include <string>

namespace ZERO_NAMESPACE {

/// @brief Returns a composition in one line for logs, defaults included: "ZeroStage<2>: bfloat16
/// parameters (...), ContiguousPartitioner, ..., reduced by every_micro_step".
///
/// The reduction schedule is an option whose default differs between stages 1 and 2, so the same
/// program may round at different points in these stages. Pass the engine to read the schedule that
/// it uses.
template <class Stage>
[[nodiscard]] std::string describe(ReductionSchedule schedule = default_schedule(Stage::stage)) {
    using Chosen = typename Stage::Composition; // not named Composition: -Wshadow warns if the
                                                // header of zero::Composition is included first
    return detail::describe_engine<typename Chosen::EngineConfig>(
        Stage::stage,
        detail::text({type_name<typename Chosen::Partitioner>(), ", ",
                      type_name<typename Chosen::Bucketer>(), ", "}),
        schedule);
}

/// @brief Returns the composition of an engine, with the reduction schedule that it uses and
/// whether a step has one micro-step, then a line with the matrices of an optimizer that has a rule
/// for them (`Muon`), and one line for each option that was set and that this stage does not use.
template <class Stage>
    requires requires(Stage const& stage) {
        typename Stage::Composition;
        stage.schedule();
    }
[[nodiscard]] std::string describe(Stage const& stage) {
    return describe<Stage>(stage.schedule()) + detail::describe_micro_steps(stage)
           + detail::describe_updates<detail::config_of_t<Stage>>(stage.layout())
           + detail::describe_unused(stage.unused_options());
}

/// @brief The same for a program that has an engine but not its stage. An engine does not depend on
/// the types of partitioner and bucketer, so the text does not name them.
template <class EngineType>
    requires(!requires { typename EngineType::Composition; })
[[nodiscard]] std::string describe(EngineType const& engine) {
    return detail::describe_engine<detail::config_of_t<EngineType>>(engine.stage_number(), "",
                                                                    engine.schedule())
           + detail::describe_micro_steps(engine)
           + detail::describe_updates<detail::config_of_t<EngineType>>(engine.layout())
           + detail::describe_unused(engine.unused_options());
}

} // namespace ZERO_NAMESPACE
