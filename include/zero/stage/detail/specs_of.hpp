#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../layout/parameter_spec.hpp"
#include "../any_parameter.hpp"

#include <span>
#include <vector>

namespace ZERO_NAMESPACE::detail {

/// @brief Returns the properties of each parameter on which the layout depends.
[[gnu::cold]] std::vector<ParameterSpec> specs_of(std::span<AnyParameter const> parameters);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "specs_of.ipp"
#endif
