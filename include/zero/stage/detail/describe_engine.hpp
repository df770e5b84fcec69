#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/detail/text.hpp"
#include "../../core/type_name.hpp"
#include "../../layout/flat_layout.hpp"
#include "../../layout/placement.hpp"
#include "../../policy/optimizer.hpp"
#include "describe_types.hpp"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

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

/// @brief Returns ", one micro-step per step" if that is so.
template <class Engine>
[[gnu::cold]] std::string describe_micro_steps(Engine const& engine) {
    return engine.has_one_micro_step() ? ", one micro-step per step" : "";
}

/// @brief Returns a line with the parameters that the optimizer updates as matrices, and the
/// others; empty for an optimizer without a rule for matrices.
template <class Config>
[[gnu::cold]] std::string describe_updates(FlatLayout const& layout) {
    std::string line;
    if constexpr (MatrixOptimizer<typename Config::Optimizer>) {
        constexpr std::size_t most = 8; // names of each kind
        std::size_t counts[2] = {};
        std::string names[2];
        for (ParameterSpec const& spec : layout.parameters()) {
            if (!spec.trainable || spec.elements == 0) {
                continue;
            }
            std::size_t const kind = spec.rows != 0 ? 1 : 0;
            if (++counts[kind] <= most) {
                names[kind] += text({counts[kind] == 1 ? "" : ", ", "'", spec.name, "'"});
                if (kind == 1) {
                    names[kind] += text({" ", spec.rows, " x ", spec.elements / spec.rows});
                }
            } else if (counts[kind] == most + 1) {
                names[kind] += ", ...";
            }
        }
        line =
            text({"\n", type_name<typename Config::Optimizer>(), " updates ", counts[1],
                  " parameters as matrices (", names[1], ") and ", counts[0], " element by element",
                  (counts[0] == 0 ? "" : " ("), names[0], (counts[0] == 0 ? "" : ")")});
    }
    return line;
}

/// @brief Returns one line for each option.
[[gnu::cold]] inline std::string describe_unused(std::vector<std::string> const& options) {
    std::string lines;
    for (std::string const& option : options) {
        lines += "\nnot used in this stage: " + option;
    }
    return lines;
}

} // namespace ZERO_NAMESPACE::detail
