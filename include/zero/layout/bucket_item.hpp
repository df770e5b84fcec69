#pragma once

#include "../core/detail/namespace.hpp"

#include <cstddef>

namespace ZERO_NAMESPACE {

/// @brief A parameter as a `Bucketer` sees it.
struct BucketItem {
    std::size_t elements = 0; ///< padding included
    std::size_t unit = 0;     ///< the unit that uses it; for a tied parameter the first listed
};

} // namespace ZERO_NAMESPACE
