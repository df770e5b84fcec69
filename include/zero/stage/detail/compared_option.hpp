#pragma once

#include "../../core/detail/namespace.hpp"

#include <cstdint>

namespace ZERO_NAMESPACE::detail {

/// @brief A hash of options that must be equal on all ranks, and their name in messages.
struct ComparedOption {
    char const* name;
    std::uint64_t hash;
};

} // namespace ZERO_NAMESPACE::detail
