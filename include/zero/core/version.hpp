#pragma once

#include "detail/namespace.hpp"

namespace ZERO_NAMESPACE {

/// @brief The version of the library. CMake reads the three numbers from this file, the only place
/// that states them.
///
/// Before 1.0 a new minor version may change the interface; a patch version does not.
inline constexpr int version_major = 0;
inline constexpr int version_minor = 2; ///< the second number
inline constexpr int version_patch = 0; ///< the third number

} // namespace ZERO_NAMESPACE
