#pragma once

#include "specs_of.hpp"

namespace ZERO_NAMESPACE::detail {

ZERO_COLD_INLINE std::vector<ParameterSpec> specs_of(std::span<AnyParameter const> parameters) {
    std::vector<ParameterSpec> specs;
    for (auto const& parameter : parameters) {
        specs.push_back(parameter.spec);
    }
    return specs;
}

} // namespace ZERO_NAMESPACE::detail
