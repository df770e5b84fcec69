#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../layout/parameter_spec.hpp"
#include "../any_parameter.hpp"

#include <span>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns what the layout depends on, for each parameter.
[[gnu::cold]] inline std::vector<ParameterSpec> specs_of(std::span<AnyParameter const> parameters) {
    std::vector<ParameterSpec> specs;
    for (auto const& parameter : parameters) {
        specs.push_back(parameter.spec);
    }
    return specs;
}

} // namespace ZERO_NAMESPACE::detail
