#pragma once

#include "../../core/detail/namespace.hpp"
#include "../optimizer.hpp"

#include <cstddef>
#include <string>

namespace ZERO_NAMESPACE::detail {

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
