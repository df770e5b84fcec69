#pragma once

#include "../../core/detail/namespace.hpp"

#include <type_traits>

namespace ZERO_NAMESPACE::detail {

/// @brief The type of the parameter values in an update: const if they are rounded from master
/// weights.
template <class Types>
using UpdatedValue = std::conditional_t<Types::has_master, typename Types::Parameter const,
                                        typename Types::Parameter>;

} // namespace ZERO_NAMESPACE::detail
