#pragma once

#include "../../core/detail/namespace.hpp"

#include <cstddef>
#include <string>
#include <type_traits>

namespace ZERO_NAMESPACE::detail {

/// @brief An optimizer that names its states: `static constexpr char const* state_names[states]`.
/// Optional.
template <class O>
concept OptimizerDeclaresStateNames = requires { O::state_names; };

/// @brief The declared names have the right type and number.
template <class O>
concept OptimizerStateNamesFit =
    !OptimizerDeclaresStateNames<O>
    || std::is_same_v<decltype(O::state_names), char const* const[O::states]>;

/// @brief Returns the name of a state: as declared, otherwise "state0", "state1" and so on.
template <class O>
[[nodiscard]] std::string state_name(std::size_t state) {
    if constexpr (OptimizerDeclaresStateNames<O>) {
        return O::state_names[state];
    } else {
        return "state" + std::to_string(state);
    }
}

} // namespace ZERO_NAMESPACE::detail
