#pragma once

#include "../../core/detail/namespace.hpp"

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

} // namespace ZERO_NAMESPACE::detail
