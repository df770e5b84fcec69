#pragma once

#include "../core/detail/namespace.hpp"

namespace ZERO_NAMESPACE::launch {

/// @brief Returns the value of an environment variable, or null if it is not set.
/// @param context the second argument of `environment`
using VariableLookup = char const* (*)(void* context, char const* name);

} // namespace ZERO_NAMESPACE::launch
