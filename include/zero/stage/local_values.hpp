#pragma once

#include "../core/detail/namespace.hpp"

#include <cstddef>
#include <vector>

namespace ZERO_NAMESPACE {

/// @brief The values of one slice of a parameter that a rank holds.
struct LocalValues {
    std::size_t begin = 0;     ///< offset of the first value in the parameter
    std::vector<float> values; ///< one per element, from `begin` on
};

} // namespace ZERO_NAMESPACE
