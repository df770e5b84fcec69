#pragma once

#include "../../core/detail/namespace.hpp"
#include "../layout_options.hpp"
#include "../parameter_spec.hpp"

#include <span>

namespace ZERO_NAMESPACE::detail {

/// @brief Checks the parameters and the options of a layout.
/// @throws InvalidArgument naming the parameter and the remedy
[[gnu::cold]] void validate_parameters(std::span<ParameterSpec const> parameters,
                                       LayoutOptions const& options);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "validate_parameters.ipp"
#endif
