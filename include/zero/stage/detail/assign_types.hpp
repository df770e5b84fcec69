#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/dtype.hpp"
#include "../any_parameter.hpp"

#include <array>
#include <span>

namespace ZERO_NAMESPACE::detail {

/// @brief Sets `spec.type` of each parameter to its index in the list of types.
/// @param types the types of parameters and gradients, in the order of the composition
/// @throws InvalidArgument naming a parameter whose types are not in the list
[[gnu::cold]] void assign_types(std::span<AnyParameter> parameters,
                                std::span<std::array<DType, 2> const> types);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "assign_types.ipp"
#endif
