#pragma once

#include "../../core/detail/namespace.hpp"

namespace ZERO_NAMESPACE::detail {

/// @brief A list of policies as one type.
template <class... Policies>
struct PolicyPack {};

} // namespace ZERO_NAMESPACE::detail
