#pragma once

#include "../../core/detail/namespace.hpp"

namespace ZERO_NAMESPACE::detail {

/// @brief Throws unless `value` is a loss scale: positive and finite, with a finite inverse.
/// @param name the name of the option or member, for the message
/// @throws InvalidArgument
void require_scale(float value, char const* name);

} // namespace ZERO_NAMESPACE::detail

#if !defined(ZERO_COMPILED)
#include "require_scale.ipp"
#endif
