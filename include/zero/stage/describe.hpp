#pragma once

#include "../core/detail/namespace.hpp"
#include "../core/detail/text.hpp"
#include "../core/dtype.hpp"
#include "../core/type_name.hpp"
#include "../policy/master_weights_policy.hpp"
#include "detail/composition_conflict.hpp"
#include "detail/engine_config.hpp"

#include <cstddef>
#include <string>
#include <utility>

namespace ZERO_NAMESPACE {

namespace detail {

template <class Types>
std::string describe_types() {
    std::string const master = Types::master_form == MasterForm::split ? "float32 in parts"
                               : Types::master_form == MasterForm::stochastic
                                   ? "none, rounded stochastically"
                               : Types::has_master ? name_of(dtype_of<typename Types::Master>())
                                                   : "none";
    return detail::text({name_of(dtype_of<typename Types::Parameter>()), " parameters (gradients ",
                         name_of(dtype_of<typename Types::Gradient>()), ", sent as ",
                         name_of(dtype_of<typename Types::Communication>()), ", accumulated in ",
                         name_of(dtype_of<typename Types::Accumulation>()), ", master weights ",
                         master, ")"});
}

} // namespace detail

/// @brief A composition in one line, defaults included, for logs: "ZeroStage<2>: bfloat16
/// parameters (...), ContiguousPartitioner, ...".
template <class Stage>
[[nodiscard]] std::string describe() {
    using Chosen = typename Stage::Composition; // not Composition: -Wshadow sees zero::Composition
                                                // when its header came first
    using Engine = typename Chosen::EngineConfig;
    std::string text = detail::text({"ZeroStage<", Stage::stage, ">: "});
    [&]<std::size_t... Type>(std::index_sequence<Type...>) {
        ((text +=
          detail::text({detail::describe_types<typename Engine::template TypesAt<Type>>(), ", "})),
         ...);
    }(std::make_index_sequence<Engine::types>());
    return detail::text({text, type_name<typename Chosen::Partitioner>(), ", ",
                         type_name<typename Chosen::Bucketer>(), ", ",
                         type_name<typename Chosen::Communicator>(), ", ",
                         type_name<typename Chosen::LossScaler>(), ", ",
                         type_name<typename Chosen::Optimizer>(), " with ",
                         type_name<typename Chosen::OptimizerStates>()});
}

} // namespace ZERO_NAMESPACE
