#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/dtype.hpp"
#include "../any_parameter.hpp"
#include "assign_types.hpp"

#include <array>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Converts the caller's list of parameters to the engine's form, each with the index of its
/// parameter type.
/// @throws InvalidArgument naming a parameter whose types the composition does not have
template <class Engine, class Registration>
[[gnu::cold]] std::vector<AnyParameter>
register_parameters(std::span<Registration const> parameters) {
    std::vector<AnyParameter> registered(parameters.begin(), parameters.end());
    using Pair = std::array<DType, 2>;
    auto const types = []<std::size_t... Type>(std::index_sequence<Type...>) {
        return std::array<Pair, Engine::types>{
            Pair{dtype_of<typename Engine::template TypesAt<Type>::Parameter>(),
                 dtype_of<typename Engine::template TypesAt<Type>::Gradient>()}...};
    }(std::make_index_sequence<Engine::types>());
    assign_types({registered.data(), registered.size()}, {types.data(), types.size()});
    return registered;
}

} // namespace ZERO_NAMESPACE::detail
