#pragma once

#include "../../core/detail/namespace.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE::detail {

/// @brief The slice of a parameter that this rank holds in one array.
struct HeldSlice {
    std::size_t parameter = 0;
    std::size_t begin = 0; ///< offset of the first element in the parameter
    std::size_t elements = 0;
    void* data = nullptr;
};

} // namespace ZERO_NAMESPACE::detail
