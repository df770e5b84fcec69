#pragma once

#include "../../core/detail/namespace.hpp"
#include "../../core/storage_types.hpp"

#include <concepts>
#include <type_traits>

/// @file
/// @brief The requirements of `OptimizerStatePolicy`, one concept each. The concept and its
/// messages use them.

namespace ZERO_NAMESPACE::detail {

template <class P>
concept OptimizerStateHasOptions = requires { typename P::Options; };

template <class P>
concept OptimizerStateHasType = requires { typename P::Type; };

template <class P>
concept OptimizerStateHasScale = std::same_as<decltype(P::is_block_scaled), bool const>;

/// float and bfloat16 have the range that moments need; float16 needs a scale.
template <class P>
concept StateTypeFitsScale = StorageType<typename P::Type>
                             && P::is_block_scaled == std::is_same_v<typename P::Type, float16>;

} // namespace ZERO_NAMESPACE::detail
