#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/detail/text.hpp"
#include "../../core/type_name.hpp"
#include "../../layout/placement.hpp"
#include "describe_types.hpp"

#include <cstddef>
#include <string>
#include <utility>

namespace ZERO_NAMESPACE::detail {

/// @brief Describes an engine, for `zero::describe`.
/// @param sharding names of partitioner and bucketer, each followed by ", "; empty for an engine
/// that does not know them
template <class Config>
[[gnu::cold]] std::string describe_engine(int stage, std::string const& sharding,
                                          ReductionSchedule schedule) {
    std::string types;
    [&]<std::size_t... Type>(std::index_sequence<Type...>) {
        ((types += text({describe_types<typename Config::template TypesAt<Type>>(), ", "})), ...);
    }(std::make_index_sequence<Config::types>());
    return text(
        {"ZeroStage<", stage, ">: ", types, sharding, type_name<typename Config::Communicator>(),
         ", ", type_name<typename Config::LossScaler>(), ", ",
         type_name<typename Config::Optimizer>(), " with ",
         type_name<typename Config::OptimizerState>(),
         Config::rounds_states ? " (rounded stochastically)" : "", ", reduced by ",
         name_of(schedule), (schedule == default_schedule(stage) ? " (the stage's default)" : "")});
}

} // namespace ZERO_NAMESPACE::detail
