#pragma once

#include "../../core/detail/namespace.hpp"

#include <type_traits>

namespace ZERO_NAMESPACE::detail {

/// @brief Whether the partitioner requires no bucketer, or this one.
template <class Partitioner, class Bucketer>
inline constexpr bool accepts_bucketer = true;

template <class Partitioner, class Bucketer>
    requires requires { typename Partitioner::RequiredBucketer; }
inline constexpr bool accepts_bucketer<Partitioner, Bucketer> =
    std::is_same_v<Bucketer, typename Partitioner::RequiredBucketer>;

} // namespace ZERO_NAMESPACE::detail
